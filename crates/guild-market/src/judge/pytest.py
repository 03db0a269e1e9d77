"""Runs the tests of a suite by pytest and tells what became of each. The first line of its input is repeated."""

import json
import os
import sys

word = sys.stdin.readline().strip()
answers = os.dup(1)
os.dup2(os.open("/dev/null", os.O_RDONLY), 0)
os.dup2(2, 1)
# Behind everything else: a submission replaces no module of the library or of pytest.
sys.path[0:1] = []
sys.path.append("/submission")

import pytest


def main():
    told = {}

    class Report:
        def pytest_runtest_logreport(self, report):
            status, why = told.get(report.nodeid, ("passed", ""))
            if report.outcome != "passed" and status == "passed":
                status, why = "failed", report.when + " " + report.outcome
            told[report.nodeid] = (status, why)

        def pytest_collectreport(self, report):
            if report.failed:
                told[report.nodeid] = ("error", "it could not be collected")

    words = ["-c", "/judge/pytest.ini", "--rootdir", "/judge/tests", "--noconftest", "-q"]
    words += ["-p", "no:cacheprovider", "--import-mode=importlib", "--basetemp", "/tmp/pytest"]
    cover = "/tmp/coverage.json"
    if "cover" in sys.argv:
        words += ["-p", "pytest_cov.plugin", "--cov=/submission", "--cov-branch"]
        words += ["--cov-report=json:" + cover, "--cov-config=/judge/coverage.ini"]
    code = int(pytest.main(words + ["/judge/tests"], plugins=[Report()]))
    coverage = None
    if "cover" in sys.argv and os.path.exists(cover):
        with open(cover) as file:
            totals = json.load(file)["totals"]
        branches = [totals.get("covered_branches", 0), totals.get("num_branches", 0)]
        coverage = [totals["covered_lines"] + branches[0], totals["num_statements"] + branches[1]]
    text = json.dumps({"word": word, "code": code, "told": told, "coverage": coverage}) + "\n"
    rest = text.encode()
    while rest:
        rest = rest[os.write(answers, rest):]
    os._exit(0)


main()
