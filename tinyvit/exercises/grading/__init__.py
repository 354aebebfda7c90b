"""Grades submissions: each solution runs in a process of its own, on inputs that nobody knew before.

    from tinyvit.exercises import grading

    grades = grading.grade("submission.ipynb")
    print(grades.score, grades.table())
    print(grading.class_table(grading.grade_all(["handed_in/"])))

The shapes and the numbers are drawn anew each time. The learner's function is called in another process, and its
outputs are compared here, so that nothing it does there changes the comparison. It may import NumPy and a few modules
of Python (`rules`), has limits on time, memory, files and processes, and runs in an empty folder. This isolates
mistakes, and cheating by students. It does not hold a determined attacker, unless the operating system does: run it in
a container or under an account of its own for that.

Complex numbers in a backward's code are refused, and so are those that it casts to real ones. Finite differences are
too inexact to be right, except for linear functions.
"""

from tinyvit.exercises.grading.grades import Grade, Grades, class_csv, class_table, grade, grade_all
