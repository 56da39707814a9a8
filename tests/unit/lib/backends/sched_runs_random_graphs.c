// SPDX-License-Identifier: GPL-2.0-only
/*
 * Random graphs of threads, whose edges are system calls or synchronisations by hand, under random
 * settings of the scheduler: each thread runs once, after all its predecessors, and each call is
 * made once. TL_SEED repeats a run.
 */
#include "lib_check.h"
#include "random.h"

#include <sys/mman.h>

#define GRAPHS 200
#define NODES 64u
#define EDGES_MAX 5u		/* out of one node */

struct node {
	struct tl_thread *thread;
	int64_t results[EDGES_MAX];
	unsigned int to[EDGES_MAX];
	bool by_call[EDGES_MAX];
	unsigned int edges;
	unsigned int predecessors, arrived;
	unsigned int runs;
};

static struct node nodes[NODES];
static struct random numbers;
static unsigned int calls;
static int fd;

static void run_node(struct tl_thread *self, void *arg)
{
	struct node *node = arg;

	CHECK_EQ(node->runs++, 0);
	CHECK_EQ(node->arrived, node->predecessors);
	for (unsigned int i = 0; i < node->edges; i++) {
		struct node *target = &nodes[node->to[i]];

		target->arrived++;
		if (node->by_call[i])
			CHECK_EQ(TL_CALL(tl_thread_sched(self), target->thread, &node->results[i],
					 SYS_write, fd, "e", 1), 0);
		else
			CHECK_EQ(tl_thread_sync(target->thread), 0);
	}
}

static void make_graph(struct tl_sched *sched)
{
	memset(nodes, 0, sizeof(nodes));
	for (unsigned int i = 0; i < NODES - 1; i++) {
		nodes[i].edges = random_below(&numbers, EDGES_MAX + 1);
		for (unsigned int e = 0; e < nodes[i].edges; e++) {
			nodes[i].to[e] = i + 1 + random_below(&numbers, NODES - i - 1);
			nodes[i].by_call[e] = random_below(&numbers, 4) != 0;
			nodes[nodes[i].to[e]].predecessors++;
			calls += nodes[i].by_call[e];
		}
	}
	for (unsigned int i = 0; i < NODES; i++)
		CHECK_EQ(tl_thread_create(sched, &nodes[i].thread, run_node, &nodes[i],
					  nodes[i].predecessors), 0);
}

int main(void)
{
	numbers = random_seeded(random_choose_seed());
	fd = MUST(memfd_create("edges", 0));
	for (int graph = 0; graph < GRAPHS; graph++) {
		uint32_t flush_at = 1 + random_below(&numbers, 40), entries = 1;
		uint64_t deadline_ns;
		struct tl_sched *sched;

		while (entries < flush_at)
			entries *= 2;
		deadline_ns = random_below(&numbers, 2) ? 1000 * random_below(&numbers, 50) : 0;
		sched = sched_new(flush_at, random_below(&numbers, 2) ? entries : 0, deadline_ns);
		make_graph(sched);
		CHECK_EQ(tl_sched_run(sched), 0);
		for (unsigned int i = 0; i < NODES; i++) {
			CHECK_EQ(nodes[i].runs, 1);
			for (unsigned int e = 0; e < nodes[i].edges; e++)
				CHECK_EQ(nodes[i].results[e], nodes[i].by_call[e]);
		}
		tl_sched_destroy(sched);
	}
	CHECK_EQ(lseek(fd, 0, SEEK_END), calls);
	return 0;
}
