// SPDX-License-Identifier: GPL-2.0-or-later
/*
 * Runs the sampling loop: in each slot it waits, takes a sample and hands the row on. It owns the
 * order of these steps and the counts. Whatever could block is done in another thread (output.c) or
 * before the first deadline; checks of the target are done ten times a second.
 */
#include "sampling_loop.h"

#include <errno.h>
#include <poll.h>
#include <sched.h>
#include <stdbool.h>
#include <string.h>
#include <sys/prctl.h>
#include <sys/syscall.h>
#include <unistd.h>

#include "clock.h"
#include "limits.h"
#include "sample.h"
#include "schedule.h"
#include "run_times.h"

#define BEGIN_NS 1000000ull	/* from here to the first deadline */

volatile sig_atomic_t run_stop;

struct run {
	const struct plan *plan;
	struct source *source;
	struct output *output;
	struct stream_end *end;
	struct schedule schedule;
	struct threads threads;
	int watch;		/* pidfd, or -1 */
	uint64_t last_ns;	/* no sample after this time */
	uint64_t checked_ns;
	uint64_t first_slot;	/* with a row */
	bool any;
};

static void on_signal(int number)
{
	(void)number;
	run_stop = 1;
}

void run_catch_signals(void)
{
	struct sigaction action = { .sa_handler = on_signal, .sa_flags = (int)SA_RESETHAND };

	sigemptyset(&action.sa_mask);
	sigaction(SIGINT, &action, NULL);
	sigaction(SIGTERM, &action, NULL);
	sigaction(SIGHUP, &action, NULL);
	signal(SIGPIPE, SIG_IGN);
}

static uint32_t saturated(uint64_t value)
{
	return value > UINT32_MAX ? UINT32_MAX : (uint32_t)value;
}

uint32_t run_row_bytes(const struct plan *plan)
{
	size_t bytes = sizeof(struct row) + plan->threads * sizeof(uint64_t) + plan->data_bytes;

	return (uint32_t)((bytes + 7) & ~7ul);
}

int run_pin(int cpu)
{
	cpu_set_t set;

	if (cpu >= CPU_SETSIZE)
		return -EINVAL;
	CPU_ZERO(&set);
	CPU_SET(cpu, &set);
	return sched_setaffinity(0, sizeof(set), &set) ? -errno : 0;
}

/* Why a source is gone: a process has ended, or a file was cut. */
static enum ending gone(const struct source *source)
{
	return source->kind == &source_process ? ENDING_TARGET : ENDING_SOURCE;
}

/* Checks ten times a second that the target and the reader of the output are still there. */
static enum ending check_ends(struct run *run, uint64_t now)
{
	struct pollfd end = { .fd = run->watch, .events = POLLIN };

	if (now - run->checked_ns < BLOCK_AGE_NS)
		return ENDINGS;
	run->checked_ns = now;
	if (output_failed(run->output))
		return ENDING_OUTPUT;
	if (run->watch >= 0 && poll(&end, 1, 0) > 0)
		return ENDING_TARGET;
	return source_check(run->source) ? gone(run->source) : ENDINGS;
}

static void count(struct run *run, const struct row *row)
{
	struct stream_end *end = run->end;

	if (!run->any)
		run->first_slot = row->slot;
	run->any = true;
	end->rows++;
	end->slots = row->slot - run->first_slot + 1;
	end->late += !!(row->flags & ROW_LATE);
	end->torn += !!(row->flags & ROW_TORN);
	end->frozen += !!(row->flags & ROW_FROZEN);
	end->absent += !!(row->flags & ROW_ABSENT);
	end->retries += row->retries;
}

/* Samples in one slot. -ENODEV: the source is gone, and this row with it. */
static int serve(struct run *run, uint64_t slot)
{
	const struct plan *plan = run->plan;
	uint8_t *at = output_row(run->output);
	size_t run_bytes = plan->threads * sizeof(uint64_t);
	struct row row = { .slot = slot };
	uint64_t lag, now;
	int status;

	if (!at) {
		run->end->unwritten++;
		return 0;
	}
	threads_update(&run->threads, now_ns());
	row.t_ns = now_ns();
	lag = row.t_ns - schedule_deadline(&run->schedule, slot);
	row.lag_ns = saturated(lag);
	row.frozen = run->threads.frozen;
	status = sample_take(plan, run->source, &row, at + sizeof(row) + run_bytes);
	if (status)
		return status;
	now = now_ns();
	row.cost_ns = saturated(now - row.t_ns);
	row.flags |= (lag > run->schedule.interval_ns / 2 ? ROW_LATE : 0) |
		     (row.frozen ? ROW_FROZEN : 0);
	memcpy(at, &row, sizeof(row));
	memcpy(at + sizeof(row), run->threads.run_ns, run_bytes);
	output_commit(run->output, now, run->schedule.interval_ns);
	count(run, &row);
	return 0;
}

static enum ending sample(struct run *run)
{
	for (;;) {
		uint64_t slot = schedule_slot(&run->schedule, now_ns());
		uint64_t deadline = schedule_deadline(&run->schedule, slot);
		enum ending ending;
		bool due;

		if (deadline >= run->last_ns)
			return ENDING_DURATION;
		do {
			due = schedule_wait(&run->schedule, deadline, &run_stop);
			ending = run_stop ? ENDING_SIGNAL : check_ends(run, now_ns());
			if (ending != ENDINGS)
				return ending;
		} while (!due);
		if (serve(run, slot))
			return gone(run->source);
	}
}

static int prepare(struct run *run, char *error)
{
	const struct plan *plan = run->plan;
	uint8_t data[ROW_BYTES_MAX];
	struct row row = { .slot = 0 };
	pid_t tid = 0;
	int status;

	run->watch = plan->watch ? (int)syscall(SYS_pidfd_open, plan->watch, 0) : -1;
	if (plan->watch && run->watch < 0)
		return source_fail(error, -errno, "process %d, which is to be watched: %m",
				   plan->watch);
	status = threads_open(&run->threads, plan->thread, plan->threads, &tid);
	if (status) {
		errno = -status;
		return source_fail(error, status, "run time of thread %d: %m", tid);
	}
	status = plan->cpu >= 0 ? run_pin(plan->cpu) : 0;
	if (status)
		return source_fail(error, status, "cannot run on CPU %d: this process may not, or "
				   "it is not there", plan->cpu);
	prctl(PR_SET_TIMERSLACK, 1);	/* sleeps end when they should */
	/* One sample without a deadline maps the pages before the first slot. */
	if (sample_take(plan, run->source, &row, data))
		return source_fail(error, -ENODEV, "the memory went away before the first sample");
	return 0;
}

int run_plan(const struct plan *plan, struct source *source, struct output *output,
	     struct stream_end *end, char *error)
{
	struct run run = {
		.plan = plan,
		.source = source,
		.output = output,
		.end = end,
		.watch = -1,
	};
	int status = prepare(&run, error);

	if (!status) {
		run.schedule.interval_ns = plan->interval_ns;
		run.schedule.spin_ns = plan->spin_ns;
		run.schedule.first_ns = now_ns() + BEGIN_NS;
		run.last_ns = plan->duration_ns ? run.schedule.first_ns + plan->duration_ns
						: UINT64_MAX;
		end->magic = END_MAGIC;
		end->ending = sample(&run);
		end->lost = end->slots - end->rows;
	}
	threads_close(&run.threads);
	if (run.watch >= 0)
		close(run.watch);
	return status;
}
