"""Every method of the catalogue under every question: run what is not run yet, and write the page.

    python -m papers.all_against_all DATASET [--root FOLDER] [--jobs N] [--out FOLDER] [--page | --cost]

What is finished is kept in results/DATASET, one line for each trial and run, and read back.
"""

import argparse
import sys
from pathlib import Path

from clearance.research import Console, Processes, check_choice, listening, one_line_errors
from papers.all_against_all.matrix import HERE, PLANS, Work, read_matrix
from papers.all_against_all.page import write_page


def main(words: list[str] | None = None) -> None:
    """Read the options, run, and write the page."""
    parser = argparse.ArgumentParser(
        "python -m papers.all_against_all", description=(__doc__ or "").partition("\n")[0]
    )
    parser.add_argument("dataset", choices=PLANS)
    parser.add_argument("--root", help="the folder with the dataset's files")
    parser.add_argument("--page", action="store_true", help="run nothing, write the page of what is finished")
    parser.add_argument(
        "--cost", action="store_true", help="only measure the time and memory of each method's training"
    )
    parser.add_argument(
        "--condition", action="append", help="run only this condition of the plan; may be repeated"
    )
    parser.add_argument("--jobs", type=int, default=1, help="runs at a time (default: 1)")
    parser.add_argument(
        "--out", type=Path, help="the folder for networks (default: clearance-all-against-all/DATASET)"
    )
    given = parser.parse_args(words)
    runs = given.out or Path("clearance-all-against-all") / given.dataset
    with one_line_errors("papers.all_against_all", resumes=True):
        work = Work(read_matrix(given.dataset, given.root), HERE / "results" / given.dataset)
        for name in given.condition or ():
            check_choice("condition", name, work.matrix.conditions)
        if given.cost:
            work.measure_cost()
        elif not given.page:
            with listening(Console()) as listener, Processes(given.jobs) as engine:
                work.search(runs, engine, listener)
                work.run(runs, engine, listener, given.condition or ())
        path = write_page(HERE / "results" / given.dataset)
        sys.stdout.write(f"{path}\n")


if __name__ == "__main__":
    main()
