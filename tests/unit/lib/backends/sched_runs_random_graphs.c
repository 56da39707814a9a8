// SPDX-License-Identifier: GPL-2.0-only
/*
 * Random graphs of threads, whose edges are system calls or synchronisations by hand, under random
 * settings of the scheduler: each thread runs once, after all its predecessors, and each call is
 * made once. TL_TEST_SEED repeats a run.
 */
#include "lib_check.h"

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
static uint64_t seed;
static unsigned int calls;
static int fd;

static uint32_t next(uint32_t below)
{
	seed = seed * 6364136223846793005u + 1442695040888963407u;
	return (uint32_t)(seed >> 33) % below;
}

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
		nodes[i].edges = next(EDGES_MAX + 1);
		for (unsigned int e = 0; e < nodes[i].edges; e++) {
			nodes[i].to[e] = i + 1 + next(NODES - i - 1);
			nodes[i].by_call[e] = next(4) != 0;
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
	const char *given = getenv("TL_TEST_SEED");

	seed = given ? strtoull(given, NULL, 0) : now_us();
	fprintf(stderr, "TL_TEST_SEED=%llu\n", (unsigned long long)seed);
	fd = MUST(memfd_create("edges", 0));
	for (int graph = 0; graph < GRAPHS; graph++) {
		uint32_t flush_at = 1 + next(40), entries = 1;
		struct tl_sched *sched;

		while (entries < flush_at)
			entries *= 2;
		sched = sched_new(flush_at, next(2) ? entries : 0, next(2) ? 1000 * next(50) : 0);
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
