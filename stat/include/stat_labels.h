/* SPDX-License-Identifier: GPL-2.0-only */
/*
 * The codes of `trapless stat`: what the labels of its regions mean, and the bounds of its
 * calibration. stat/kmod and stat/guest write them into the model's rows, and
 * trapless/stat/labels.py reads them: tests/unit/stat/test_labels.py compares every line here with
 * it. All values are plain numbers or lists, so that the test can read them without a compiler.
 */
#ifndef TRAPLESS_STAT_LABELS_H
#define TRAPLESS_STAT_LABELS_H

/* The exit status where nothing was counted; env(1) and timeout(1) use the same one. */
#define STAT_NOT_COUNTED 125

/*
 * A label of counted work: four bits say whose work it is, and the eight bits above them which
 * phase it belongs to. Phase 0 is the program's own; STAT_PHASE is added in every other phase.
 */
#define STAT_OTHER 0
#define STAT_PROGRAM 1
#define STAT_IDLE 2
#define STAT_PHASE 4
#define STAT_PHASE_SHIFT 4
#define STAT_PHASE_MAX 255

/*
 * Where calls are told apart, four more bits say what part of a call the region is, and the twelve
 * above them which call. A region goes from a call's entry, or from where its thread goes on in it,
 * to the next call's entry. The parts from STAT_PART_FAILED on are empty regions: events of the
 * call, those from STAT_PART_SLEPT_OUT on as in STAT_EVENTS. A call that is preempted in its middle
 * is one of those preempted.
 */
#define STAT_PART_SHIFT 12
#define STAT_PART_NONE 0     /* of no call: the program's code, or an interrupt in it, goes on */
#define STAT_PART_ENTERED 1  /* begins with the call's entry */
#define STAT_PART_RESUMED 2  /* goes on in a call */
#define STAT_PART_FAILED 3   /* the call returned an error */
#define STAT_PART_SHARED 4   /* the call asked for this machine's files, and waited */
#define STAT_PART_SLEPT_OUT 5
#define STAT_PART_SLEPT_WITHIN 6
#define STAT_PART_PREEMPTED 7
#define STAT_PART_LEFT_AGAIN 8
#define STAT_CALL_SHIFT 16
#define STAT_CALL_MASK 0xfff
#define STAT_CALL_UNKNOWN 0xfff /* one of 32 bits, or a number that no call has */

/* A phase of the calibration: which loop, in which mode, in which round. */
#define STAT_CALIBRATION 0x80
#define STAT_CALIBRATION_SUPERVISOR 0x40
#define STAT_ROUND 0x10
#define STAT_LOOP_MASK 0x0f

/* A phase of a turn: twice the turn's number, and in which mode. */
#define STAT_TURN 0x40
#define STAT_TURN_SUPERVISOR 0x01
#define STAT_TURNS_MAX 32

/*
 * A fact: an empty region whose label carries a number. The lowest four bits are STAT_FACT, twelve
 * bits say which fact it is, and 48 bits are the number.
 */
#define STAT_FACT 15
#define STAT_FACT_SHIFT 4
#define STAT_FACT_MASK 0xfff
#define STAT_VALUE_SHIFT 16
#define STAT_VALUE_BITS 48

/* The facts. The first of STAT_EVENTS is 16 times the phase, the others follow it. */
#define STAT_FACT_STATUS 0xff0	     /* the program's exit status, as a shell gives it */
#define STAT_FACT_LEFT_RUNNING 0xff1 /* whether processes were left and had to be ended */
#define STAT_FACT_WORKED 0xff2	     /* calls with work on their way out, in an uncounted run */
#define STAT_FACT_NUMBERLESS 0xff4   /* calls of a number that no call has, in such a run */
#define STAT_FACT_REFUSALS 0xff3     /* tl_supervisor.refusals; all bits where nobody answered */
#define STAT_FACT_CALLS 0xfe0	     /* calls in supervisor mode, in the order of STAT_CALLS */
#define STAT_FACT_DEMOTIONS 0xfd0    /* demotions by cause, TL_DEMOTIONS of them */

/*
 * What the module counts in each phase: of page faults also those that read from a file
 * (file_faults); requests for this machine's files, each of which waits (shared); calls in which a
 * thread slept and the processor went to others (slept_out) or stayed within the program
 * (slept_within), calls that ended with another thread's turn (preempted), and calls in the middle
 * of which the processor went to another thread though this one could have gone on
 * (preempted_within). Of all these, left_again are those whose call had left the processor before.
 * Where calls are told apart: names that getdents64 returned (names), and calls that asked for the
 * attributes of one of them (name_stats).
 */
#define STAT_EVENTS(X) \
	X(forks) X(execs) X(exits) X(signals) X(page_faults) \
	X(slept_out) X(slept_within) X(preempted) X(file_faults) X(shared) X(preempted_within) \
	X(left_again) X(names) X(name_stats)

/* Where calls ended that were made in supervisor mode: fields calls_* of struct tl_process. */
#define STAT_CALLS(X) X(direct) X(worked) X(left) X(kernel)

/* The loops of the calibration; functions run_* of stat/guest/calibrate.c. */
#define STAT_LOOPS(X) \
	X(nothing) X(calls) X(batches) X(faults) X(double_faults) X(kernel_faults) X(handed) \
	X(closes) X(sleeps) X(preemptions) X(sleeps_within) X(sleeps_twice) X(forks) X(execs) \
	X(traced) X(scans)

/* The operations of one loop, and the calls of a batch in it. */
#define STAT_OPERATIONS 64
#define STAT_BATCH 32

#endif
