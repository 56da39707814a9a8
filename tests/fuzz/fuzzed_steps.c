// SPDX-License-Identifier: GPL-2.0-only
/*
 * Operations of a fuzzed program on programs of calls: it fills in steps in a ring or in its own
 * memory, and has them made by itself or by workers.
 */
#include "operations.h"

#define STEPS 16u
#define PROGRAMS 4u		/* in the program's own memory */
#define PROGRAMS_AT 32768u	/* there, in scratch: calls write over it now and then */

/* For what may be in supervisor mode: no call writes here. */
static struct tl_request kept[PROGRAMS * STEPS];

/*
 * Where an argument comes from. A program that may be in supervisor mode takes a descriptor from
 * another step, and nothing that could be an address or a length.
 */
static uint32_t take_source(struct script *script, struct tl_request *step, unsigned int argument)
{
	uint8_t source = script_take(script), more = script_take(script);

	if (supervised)
		source = argument ? 0 : source & 1;
	switch (source & 3) {
	case 0:
		return 0;
	case 1:
		step->args[argument] = more % (STEPS + 2);
		return TL_RESULT(argument);
	default:
		step->args[argument] = more & 128 ? (uint64_t)fault_page() + more :
						    (uint64_t)scratch + more * 8u;
		return source & 1 ? TL_WORD64(argument) : TL_WORD32(argument);
	}
}

static void fill_step(struct script *script, struct tl_request *step)
{
	uint8_t how = script_take(script);

	request_fill(script, step);
	if (how % 8 == 7) {
		step->nr = how & 8 ? TL_NR_STORE : TL_NR_INCREASE;
		step->args[0] = (uint64_t)scratch + script_take(script) * 8u;
	} else {
		for (unsigned int argument = 0; argument < (how >> 3 & 3); argument++)
			step->nr |= take_source(script, step, argument);
	}
	if (how & 32) {
		step->nr |= TL_JUMPS;
		step->condition = script_take(script) % 9;
		step->target = script_take(script) % (STEPS + 2);
	}
	if (how == 255)
		step->nr |= 1u << (25 + script_take(script) % 7);
	__atomic_store_n(&step->state, TL_SUBMITTED, __ATOMIC_RELEASE);
}

/* Fills in some steps of a ring's program. */
void put_steps(struct script *script)
{
	struct ring *ring = take_ring(script);
	uint8_t where = script_take(script);

	for (uint32_t i = 0; ring->requests && i <= (where >> 4 & 3); i++)
		fill_step(script, &ring->requests[((where & 15) + i) & (ring->entries - 1)]);
}

void enter_program(struct script *script)
{
	struct ring *ring = take_ring(script);
	uint8_t how = script_take(script), steps = script_take(script);
	struct tl_program *program;

	if (!ring->requests)
		return;
	program = (void *)((char *)ring->requests + TL_RING_PROGRAM_OFFSET(ring->entries));
	if (how & 32)
		program->at = how & 64 ? steps : 0;
	program->steps = how & 128 ? 100000 : steps;
	enter(ring, how % (STEPS + 1), TL_ENTER_PROGRAM);
}

/* Fills in a program in memory, and has a worker make it or a thread's batch refuse it. */
void put_program(struct script *script)
{
	struct ring *ring = take_ring(script);
	uint8_t how = script_take(script), steps = script_take(script);
	struct tl_request *program = supervised ? kept : (void *)(scratch + PROGRAMS_AT);
	struct tl_request *request;

	program += how % PROGRAMS * STEPS;
	for (uint32_t i = 0; i <= (how >> 2 & 7); i++)
		fill_step(script, &program[i]);
	if (!ring->requests)
		return;
	request = &ring->requests[how >> 4 & (ring->entries - 1)];
	request->nr = TL_NR_PROGRAM;
	request->args[0] = steps % 16 == 15 && !supervised ? take_argument(script) :
							     (uint64_t)program;
	request->args[1] = (how >> 2 & 7) + 1u;
	request->args[2] = steps;
	request->args[3] = how & 128 ? TL_PROGRAM_CHAIN : 0;
	request->args[4] = steps % 32 == 31;
	__atomic_store_n(&request->state, TL_SUBMITTED, __ATOMIC_RELEASE);
	ring_submit(ring, how >> 4 & (ring->entries - 1));
	if (how & 64)
		ring_notify(ring, 1);
}
