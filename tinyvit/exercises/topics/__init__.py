"""One file a topic: what is asked, on which inputs, a solution, hints, and usual mistakes; see `exercises.exercise`."""
