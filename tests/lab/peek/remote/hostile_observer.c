// SPDX-License-Identifier: GPL-2.0-only
/*
 * Attacks trapless_rdma.ko as an observer may, one that has the key and one that has not. It owns
 * the attacks; the steps of an honest observer are the sampler's own, whose file it includes.
 *
 *   hostile_observer HOST KEY_FILE ATTACK [ARGUMENT]...
 *
 *   read|write|atomic ADDRESS BYTES [RKEY]   one request after an honest beginning, unchecked
 *   hold            prints the keys of its regions, and waits for its input
 *   replay          answers with what was right on another connection
 *   silent COUNT    connections without an answer, held until all are closed
 *   flood SECONDS   malformed greetings and answers, and floods of them
 */
#include <inttypes.h>
#include <time.h>
#include <unistd.h>

#include "../../../../sampler/remote/rdma_connection.c"
#include "source.h"

#define SILENT_MAX 32

static const struct library *library;
static const char *host;
static struct key key;
static char refusal[256];	/* the last one's */

static _Noreturn void die(const char *text)
{
	fprintf(stderr, "hostile: %s\n", text);
	exit(1);
}

static struct rdma *made(void)
{
	struct rdma *rdma = calloc(1, sizeof(*rdma));

	if (!rdma)
		die("out of memory");
	rdma->call = library;
	return rdma;
}

static void drop(struct rdma *rdma)
{
	rdma_disconnect_target(rdma);
	free(rdma);
}

/* An honest observer's connection. */
static struct rdma *opened(void)
{
	struct rdma *rdma = made();

	if (rdma_connect_target(rdma, host, "18515", &key))
		die(rdma->reason);
	return rdma;
}

/* A connection whose greeting was taken, and which has not answered; NULL where it was refused. */
static struct rdma *greeted(struct tlr_transcript *transcript)
{
	struct rdma *rdma = made();

	if (!resolve(rdma, host, "18515") && !make_queues(rdma) && !greet(rdma, transcript))
		return rdma;
	snprintf(refusal, sizeof(refusal), "%s", rdma->reason);
	drop(rdma);
	return NULL;
}

static int request(const char *kind, char **argv)
{
	struct rdma *rdma = opened();
	uint64_t address = strtoull(argv[0], NULL, 0);
	uint32_t rkey = rdma->table->region[0].rkey;
	struct ibv_sge piece = { (uintptr_t)rdma->buffer, (uint32_t)strtoul(argv[1], NULL, 0),
				 rdma->mr->lkey };
	struct ibv_send_wr post = { .sg_list = &piece, .num_sge = 1 }, *bad;
	struct ibv_wc completion;
	uint64_t began = 0;
	uint32_t i;

	for (i = 0; i < rdma->table->regions; i++)
		if (address - rdma->table->region[i].start < rdma->table->region[i].length)
			rkey = rdma->table->region[i].rkey;
	if (argv[2])
		rkey = (uint32_t)strtoul(argv[2], NULL, 0);
	memset(rdma->buffer, 0x5a, SLOT_BYTES);
	if (!strcmp(kind, "atomic")) {
		post.opcode = IBV_WR_ATOMIC_FETCH_AND_ADD;
		post.wr.atomic.remote_addr = address;
		post.wr.atomic.rkey = rkey;
		post.wr.atomic.compare_add = 1;
	} else {
		post.opcode = strcmp(kind, "write") ? IBV_WR_RDMA_READ : IBV_WR_RDMA_WRITE;
		post.wr.rdma.remote_addr = address;
		post.wr.rdma.rkey = rkey;
	}
	if (ibv_post_send(rdma->id->qp, &post, &bad))
		die("nothing can be posted");
	if (rdma_complete(rdma, &completion, &began, 60000))
		printf("refused: %s\n", rdma->reason);
	else
		printf("done: %02x%02x\n", rdma->buffer[0], rdma->buffer[1]);
	drop(rdma);
	return 0;
}

static int hold(void)
{
	struct rdma *rdma = opened();
	uint32_t i;

	for (i = 0; i < rdma->table->regions; i++)
		printf("%#" PRIx32 " %#" PRIx64 "\n", rdma->table->region[i].rkey,
		       (uint64_t)rdma->table->region[i].start);
	fflush(stdout);
	while (getchar() != EOF)
		;
	drop(rdma);
	return 0;
}

/* Answers, with `bytes` of the buffer behind the table; whether the target closes in answer. */
static bool is_refused(struct rdma *rdma, const void *answer, uint32_t bytes)
{
	uint8_t *place = rdma->buffer + SLOTS * SLOT_BYTES;
	struct ibv_sge piece = { (uintptr_t)place, bytes, rdma->mr->lkey };
	struct ibv_send_wr post = { .sg_list = &piece, .num_sge = 1, .opcode = IBV_WR_SEND }, *bad;
	struct ibv_wc completion = { 0 };
	uint64_t began = 0;

	if (answer)
		memcpy(place, answer, bytes);
	if (ibv_post_send(rdma->id->qp, &post, &bad))
		return true;
	while (!rdma_complete(rdma, &completion, &began, 60000))
		if (completion.wr_id == TABLE_ID)
			return false;
	return true;
}

static int replay(void)
{
	struct tlr_transcript first, second;
	struct rdma *rdma = greeted(&first);
	uint8_t code[TLR_CODE_BYTES];

	if (!rdma)
		die(refusal);
	key_code(&key, TLR_LABEL_OBSERVER, &first, NULL, 0, code);
	puts(is_refused(rdma, code, sizeof(code)) ? "first: refused" : "first: taken");
	drop(rdma);
	rdma = greeted(&second);
	if (!rdma)
		die(refusal);
	puts(is_refused(rdma, code, sizeof(code)) ? "replayed: refused" : "replayed: taken");
	drop(rdma);
	return 0;
}

static int silent(unsigned int count)
{
	struct rdma *held[SILENT_MAX];
	struct tlr_transcript transcript;
	unsigned int taken = 0, closed = 0, i;
	time_t began = time(NULL);

	for (i = 0; i < count && i < SILENT_MAX; i++) {
		held[taken] = greeted(&transcript);
		taken += held[taken] != NULL;
	}
	for (i = 0; i < taken; i++) {
		while (!rdma_check_events(held[i]) && time(NULL) - began < 120)
			sched_yield();
		closed += *held[i]->reason != 0;
		drop(held[i]);
	}
	printf("taken %u closed %u\n", taken, closed);
	return 0;
}

/* A greeting that ends before its version, or whose words may be right. */
static void greet_wrongly(void)
{
	struct tlr_hello hello = { .magic = rand() % 2 ? TLR_MAGIC : (uint64_t)rand(),
				   .version = rand() % 2 ? TLR_VERSION : (uint32_t)rand() };
	struct rdma_conn_param parameters = {
		.private_data = &hello, .private_data_len = (uint8_t)(rand() % 2 ? sizeof(hello) :
						       (size_t)rand() % (sizeof(hello.magic) + 1)),
		.initiator_depth = 1, .retry_count = 1,
	};
	bool wrong = parameters.private_data_len < sizeof(hello) || hello.magic != TLR_MAGIC ||
		     hello.version != TLR_VERSION;
	struct rdma *rdma = made();

	if (!resolve(rdma, host, "18515") && !make_queues(rdma) &&
	    !library->rdma_connect(rdma->id, &parameters) && wrong &&
	    !expect(rdma, RDMA_CM_EVENT_ESTABLISHED, NULL))
		die("a wrong greeting was taken");
	drop(rdma);
}

/* An answer of random bytes and length, or a flood of them, or none. */
static void answer_wrongly(void)
{
	struct tlr_transcript transcript;
	struct rdma *rdma = greeted(&transcript);
	uint32_t bytes = rand() % 2 ? (uint32_t)sizeof(struct tlr_answer) : (uint32_t)rand() % 4096;
	struct ibv_sge piece = { 0, bytes, 0 };
	struct ibv_send_wr post = { .sg_list = &piece, .num_sge = 1, .opcode = IBV_WR_SEND }, *bad;
	int i;

	if (!rdma)
		return;
	piece.addr = (uintptr_t)rdma->buffer;
	piece.lkey = rdma->mr->lkey;
	for (i = 0; i < 4096; i++)
		rdma->buffer[i] = (uint8_t)rand();
	for (i = rand() % 40; i > 0; i--)
		ibv_post_send(rdma->id->qp, &post, &bad);
	if (rand() % 2 && !is_refused(rdma, NULL, bytes))
		die("a wrong answer was taken");
	drop(rdma);
}

static int flood(long seconds)
{
	time_t end = time(NULL) + seconds;
	unsigned int attacks = 0;

	srand((unsigned int)getpid());
	for (; time(NULL) < end; attacks++)
		rand() % 3 ? answer_wrongly() : greet_wrongly();
	printf("attacks %u\n", attacks);
	return 0;
}

int main(int argc, char **argv)
{
	char error[SOURCE_ERROR_BYTES];

	if (argc < 4)
		die("HOST KEY_FILE ATTACK");
	host = argv[1];
	library = library_load(error);
	if (!library || key_load(&key, argv[2], error))
		die(error);
	if (!strcmp(argv[3], "hold"))
		return hold();
	if (!strcmp(argv[3], "replay"))
		return replay();
	if (argc > 4 && !strcmp(argv[3], "silent"))
		return silent((unsigned int)atoi(argv[4]));
	if (argc > 4 && !strcmp(argv[3], "flood"))
		return flood(atol(argv[4]));
	return argc > 5 ? request(argv[3], argv + 4) : 1;
}
