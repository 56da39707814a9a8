// SPDX-License-Identifier: GPL-2.0-only
/*
 * See round_time.h. Sleeping until a round time is not exact. While the guest sleeps, QEMU's main
 * loop sets the clock forward to the next timer. Something may wake that loop when the guest has
 * just halted, but its last instructions are not in the clock yet. Then the loop starts from a
 * clock that is behind, these instructions are added afterwards, and the guest wakes too late by
 * that number. From then on the timer's ticks would fall on other instructions of each region. So,
 * after each round time:
 *
 * AWAKE_NS    an exact instant, reached by counting instructions. The moment at which the guest
 *             woke now has one effect left: the kernel set the processor's timer to its next tick
 *             then, and that counts in steps of 16 ns from when it was set.
 * EXPIRY_NS   a timer expires that was set at that instant, and the kernel sets the processor's
 *             timer to its next tick once more, at an instant that is always the same.
 * BEGIN_NS    an exact instant again: the region begins.
 */
#include <errno.h>
#include <string.h>
#include <sys/timerfd.h>
#include <time.h>
#include <unistd.h>

#include "measure.h"
#include "round_time.h"

#define SECOND_NS 1000000000u
#define ROUND_NS 64000000u	/* of virtual time; sleeping costs none of the emulator's */
#define AWAKE_NS 200000u	/* this and what follows: after it, and before the next tick */
#define EXPIRY_NS 250000u
#define EXPIRED_NS 280000u	/* and the interrupt is over */
#define BEGIN_NS 300000u
#define ATTEMPTS 8u
#define TRIED_INSTRUCTIONS 1000u
#define DISTURBANCE_MAX 4096u	/* instructions; a power of two */

static uint64_t disturbance;

static uint64_t now_ns(void)
{
	struct timespec time;

	clock_gettime(CLOCK_MONOTONIC, &time);
	return (uint64_t)time.tv_sec * SECOND_NS + (uint64_t)time.tv_nsec;
}

static struct timespec timespec_of(uint64_t ns)
{
	return (struct timespec){ .tv_sec = (time_t)(ns / SECOND_NS),
				  .tv_nsec = (long)(ns % SECOND_NS) };
}

/* Whether the counter goes on by one an instruction. */
static bool counts_instructions(void)
{
	unsigned int exact = 0;

	for (unsigned int i = 0; i < ATTEMPTS; i++)	/* an interrupt may spoil one */
		exact += round_spin(measure_counter() + TRIED_INSTRUCTIONS + i);
	return exact >= ATTEMPTS - 2;
}

/*
 * The counter's value at a given time. An interrupt between the two readings only adds to
 * `ahead`.
 */
static uint64_t counter_at(uint64_t ns)
{
	uint64_t least = UINT64_MAX;

	for (unsigned int i = 0; i < ATTEMPTS; i++) {
		uint64_t counter = measure_counter(), ahead = now_ns() - counter;

		if (ahead < least)
			least = ahead;
	}
	return ns - least;
}

void round_time_disturb(uint64_t seed)
{
	disturbance = seed;
}

/* The next of the disturbances. */
static uint64_t late(void)
{
	if (!disturbance)
		return 0;
	disturbance = disturbance * 6364136223846793005u + 1442695040888963407u;
	return disturbance >> 33 & (DISTURBANCE_MAX - 1);
}

static void sleep_until(uint64_t ns)
{
	struct timespec time = timespec_of(ns);

	while (clock_nanosleep(CLOCK_MONOTONIC, TIMER_ABSTIME, &time, NULL))
		;
}

/* The kernel's timer is set anew once this has expired. */
static void arm(int timer, uint64_t ns)
{
	struct itimerspec once = { .it_value = timespec_of(ns) };

	if (timerfd_settime(timer, TFD_TIMER_ABSTIME, &once, NULL))
		measure_fail("no timer: %s", strerror(errno));
}

static int open_timer(void)
{
	int timer = timerfd_create(CLOCK_MONOTONIC, TFD_NONBLOCK | TFD_CLOEXEC);

	if (timer < 0)
		measure_fail("no timer: %s", strerror(errno));
	return timer;
}

/* Returns false if something came between: then the next round time is tried. */
static bool begin_after(uint64_t round)
{
	static int timer = -1;
	uint64_t counter, expirations;

	if (timer < 0)
		timer = open_timer();
	counter = counter_at(round);
	if (!round_spin(counter + AWAKE_NS))
		return false;
	arm(timer, round + EXPIRY_NS);
	while (measure_counter() < counter + EXPIRED_NS)
		;
	if (read(timer, &expirations, sizeof(expirations)) < 0)
		return false;
	return round_spin(counter + BEGIN_NS);
}

void await_round_time(void)
{
	static enum { UNKNOWN, INEXACT, EXACT } kind;
	unsigned int attempts = 0;
	uint64_t round;

	if (kind == UNKNOWN)
		kind = counts_instructions() ? EXACT : INEXACT;
	do {
		if (attempts++ == ATTEMPTS)
			measure_fail("%u times the machine was busy with something else, %u ns "
				     "after a round time: no region can begin", ATTEMPTS, BEGIN_NS);
		if (disturbance)
			round_spin(measure_counter() + TRIED_INSTRUCTIONS + late());
		round = (now_ns() / ROUND_NS + 2) * ROUND_NS;
		sleep_until(round + late());
	} while (kind == EXACT && !begin_after(round));
}
