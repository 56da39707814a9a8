// SPDX-License-Identifier: GPL-2.0-only
// The public headers are usable from C++ without a warning: it includes them, calls the inline
// functions once, and expands each macro with each kind of argument. It tests no behaviour of the
// library.
#include <cstddef>
extern "C" { // as some programs include every header of C
#include <trapless_paper.h>
#include <trapless_typed.h>
}

#define TL_ANY(name, nr) (nr),
#define TL_NULL_MASK(name, nr, argument, why) (nr),
#define TL_SELF_VALUE(name, nr, argument, bits, value, why) (nr),
#define TL_BATCH_ONLY(name, nr, why) (nr),
#define TL_REFUSED(name, nr, why) (nr),
static const int numbers[] = {
#include <linux/trapless_calls.h>
	-1,
};

enum class Scoped : short { minus_one = -1 };

static void handler(int) {}

// The functions of the library are not linked: this is compiled, and not called.
inline void macros_of_the_library(struct tl_sched *sched, struct tl_psc *psc, int64_t *result)
{
	char path[] = "/";

	TL_CALL(sched, nullptr, result, 2, path, 0);
	TL_PSC_ADD(psc, 0, 3, path, sizeof(path));
}

// What TL_ADD() makes of each kind of argument is what a cast of C makes of it.
static int words_are_wrong(struct tl_batch *batch)
{
	const struct tl_request *request = batch->next;
	const void *pointer = batch;
	int array[2] = {};

	TL_ADD(batch, 1 | TL_RESULT(0), -1, pointer, array, "text", nullptr, Scoped::minus_one);
	if (request->args[0] != UINT64_MAX || request->args[5] != UINT64_MAX)
		return 6;
	if (request->args[1] != reinterpret_cast<uintptr_t>(batch) || request->args[4])
		return 7;
	if (request->args[2] != reinterpret_cast<uintptr_t>(array) || !request->args[3])
		return 8;
	request = batch->next;
	TL_ADD(batch, TL_NR_STORE, &handler, NULL, true, 'a', TL_STOPPED_BUSY, -1L);
	if (request->args[0] != reinterpret_cast<uintptr_t>(&handler) || request->args[1])
		return 9;
	if (request->args[4] != TL_STOPPED_BUSY || request->args[5] != UINT64_MAX)
		return 10;
	return TL_WAIT(1, 2) != 0x20001 ||
	       !tl_condition_is_true(TL_IF_SHORT, 1, 2);
}

int main()
{
	struct tl_request requests[2] = {};
	struct tl_batch batch = {requests, requests, requests, requests + 2, 0, 0};

	if (tl_batch_add(&batch, 39, 1, 2, 3, 4, 5, 6) != 0)
		return 1;
	if (tl_batch_add(&batch, 39, 0, 0, 0, 0, 0, 0) != 1)
		return 2;
	if (tl_batch_add(&batch, 39, 0, 0, 0, 0, 0, 0) != -11)
		return 3;
	requests[1].result = -38;
	if (tl_batch_result(&batch, 1) != -38)
		return 4;
	if (requests[0].nr != 39 || requests[0].args[5] != 6 || requests[0].state != TL_SUBMITTED)
		return 5;
	batch.next = requests;
	if (tl_add_pread64(&batch, -1, nullptr, 3, 4) || requests[0].args[0] != UINT64_MAX)
		return 11;
	if (tl_add_taking(&batch, TL_WORD64(3), 0) || requests[0].nr != (17u | TL_WORD64(3)))
		return 12;
	batch.next = requests;
	if (int wrong = words_are_wrong(&batch))
		return wrong;
	return numbers[0] < -1;
}
