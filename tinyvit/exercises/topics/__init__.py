"""Two files a topic: in the .py what is asked, on which inputs, and a solution; in the .txt hints and usual mistakes.

`exercises.exercise` says how they are written.
"""
