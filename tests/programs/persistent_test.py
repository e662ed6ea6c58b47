#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""The persistent example as people run it. Usage: persistent_test.py PERSISTENT [MPIRUN PERSISTENT_MPI]"""

import os
import re
import subprocess
import sys
import unittest

PERSISTENT, OVER_MPI = sys.argv[1], sys.argv[2:4]
del sys.argv[1:]
VERSION = re.compile(r"version (\d+): (\d+) of (\d+) masters changed, (\d+) codes, (\d+) of (\d+) scales, (\d+) blocks")


def run(*command, **options):
    return subprocess.run([str(word) for word in command], capture_output=True, text=True, timeout=120, **options)


def counters(outcome):
    return [tuple(map(int, found.groups())) for found in map(VERSION.match, outcome.stdout.splitlines()) if found]


class Persistent(unittest.TestCase):
    def good(self, *command):
        outcome = run(*command)
        self.assertEqual(outcome.returncode, 0, outcome.stderr)
        self.assertEqual(outcome.stderr, "")
        return outcome

    def test_any_number_of_ranks_counts_and_serves_the_same(self):
        alone = counters(self.good(PERSISTENT, 1))
        self.assertEqual([row[0] for row in alone], [1, 2, 3, 4, 5])
        for ranks in (2, 3, 7):
            outcome = self.good(PERSISTENT, ranks)
            self.assertEqual(counters(outcome), alone)
            self.assertIn("the engine serves version 5, the bytes that the learner holds", outcome.stdout)

    def test_small_steps_move_masters_and_no_scale(self):
        _, masters, elements, codes, _, scales, moved = counters(self.good(PERSISTENT, 2, 1))[1]
        self.assertGreater(masters, 0.99 * elements)
        self.assertLess(codes, 0.01 * elements)
        self.assertEqual(moved, 0)
        self.assertEqual(scales, 27)  # (320 x 384, twice, and 384 x 320) in blocks of 128

    def test_no_step_changes_nothing_and_large_ones_move_scales(self):
        for _, masters, _, codes, scales, _, moved in counters(self.good(PERSISTENT, 3, 2, 0))[1:]:
            self.assertEqual((masters, codes, scales, moved), (0, 0, 0, 0))
        self.assertGreater(counters(self.good(PERSISTENT, 3, 1, 0.5))[1][6], 0)

    def test_wrong_usage(self):
        for words in (["0"], ["65"], ["two"], ["2", "-1"], ["2", "1", "nan"], ["2", "1", "2"], ["2", "1", "0", "0"]):
            outcome = run(PERSISTENT, *words)
            self.assertEqual(outcome.returncode, 2, words)
            self.assertIn("usage", outcome.stderr)

    @unittest.skipUnless(OVER_MPI, "no MPI")
    def test_mpi_processes_count_what_threads_do(self):
        mpirun, program = OVER_MPI
        # Open MPI's words for "as root, in a container, with more ranks than cores"; MPICH needs none.
        words = {"OMPI_ALLOW_RUN_AS_ROOT": "1", "OMPI_ALLOW_RUN_AS_ROOT_CONFIRM": "1",
                 "OMPI_MCA_rmaps_base_oversubscribe": "1"}
        outcome = run(mpirun, "-n", 3, program, env=os.environ | words)
        self.assertEqual(outcome.returncode, 0, outcome.stderr)
        self.assertEqual(counters(outcome), counters(self.good(PERSISTENT, 1)))


if __name__ == "__main__":
    unittest.main()
