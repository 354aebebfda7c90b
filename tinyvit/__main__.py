"""python -m tinyvit"""

from tinyvit.cli import main

if __name__ == "__main__":
    main()
