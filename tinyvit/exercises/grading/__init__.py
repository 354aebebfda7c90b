"""Grades submissions: each solution runs in a process of its own, on inputs that nobody knew before.

    from tinyvit.exercises import grading

    grades = grading.grade("submission.ipynb")
    print(grades.score, grades.table())

The shapes and the numbers are drawn anew each time. The learner's code gets the inputs and returns its outputs over a
pipe, and they are compared here, so that nothing it does there changes the comparison. It may import NumPy and a few
modules of Python (`rules`), has limits on time, memory, files and processes, and runs in an empty folder; a gradient by
the complex step or by finite differences is refused. This isolates mistakes, and cheating by students. It does not hold
a determined attacker, unless the operating system does: run it in a container or under an account of its own for that.

What is noticed of differentiation by numbers: complex numbers in a backward's code, in a variable or in what a function
returns; and copies of an input in which four entries or more are changed one by one. Not noticed: many changed copies
stacked in one array, and columns of a linear function's matrix, which are taken from unit vectors. Except for linear
functions, finite differences are also too inexact to be right.
"""

from tinyvit.exercises.grading.grades import Grade, Grades, grade
