// SPDX-License-Identifier: GPL-2.0-only
/*
 * See bpf_loop.h. The program is written here as instructions, and what a loader would find in the
 * kernel's own type information (BTF) is looked up by name: so that neither a compiler for BPF nor
 * a loader is needed. Names, types and numbers are those of io_uring/bpf-ops.h.
 */
#include <errno.h>
#include <fcntl.h>
#include <linux/bpf.h>
#include <linux/btf.h>
#include <stdint.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <sys/syscall.h>
#include <unistd.h>

#include "bpf_loop.h"

#define TYPES "/sys/kernel/btf/vmlinux"
#define OPS "io_uring_bpf_ops"

/* Newer than the headers that this is built with. */
#define SETUP_NO_SQARRAY (1u << 16)
#define SETUP_SQ_REWIND (1u << 20)	/* n requests are the first n entries, each time */
#define MAP_IS_LINKED (1u << 13)	/* BPF_F_LINK */
#define ATTACH_STRUCT_OPS 44u		/* BPF_STRUCT_OPS */

#define REGION_SQ 2			/* IOU_REGION_SQ */
#define LOOP_STOP 1			/* IOU_LOOP_STOP */

#define ENTRY_BYTES ((int)sizeof(struct io_uring_sqe))

/* ---- The kernel's types ------------------------------------------------------------------- */

struct types {
	char *bytes;
	const struct btf_header *header;
};

static const char *name_of(const struct types *types, uint32_t offset)
{
	return types->bytes + types->header->hdr_len + types->header->str_off + offset;
}

/* Bytes of a type's own kind behind its struct btf_type. */
static size_t tail_bytes(const struct btf_type *type)
{
	size_t count = BTF_INFO_VLEN(type->info);

	switch (BTF_INFO_KIND(type->info)) {
	case BTF_KIND_INT:
	case BTF_KIND_VAR:
	case BTF_KIND_DECL_TAG:
		return sizeof(uint32_t);
	case BTF_KIND_ARRAY:
		return sizeof(struct btf_array);
	case BTF_KIND_STRUCT:
	case BTF_KIND_UNION:
		return count * sizeof(struct btf_member);
	case BTF_KIND_ENUM:
		return count * sizeof(struct btf_enum);
	case BTF_KIND_FUNC_PROTO:
		return count * sizeof(struct btf_param);
	case BTF_KIND_DATASEC:
		return count * sizeof(struct btf_var_secinfo);
	case BTF_KIND_ENUM64:
		return count * sizeof(struct btf_enum64);
	default:
		return 0;
	}
}

/* The number of the type that has this name and kind, or 0. */
static uint32_t find_type(const struct types *types, const char *name, unsigned int kind,
			  const struct btf_type **found)
{
	const char *at = types->bytes + types->header->hdr_len + types->header->type_off;
	const char *end = at + types->header->type_len;

	for (uint32_t id = 1; at < end; id++) {
		const struct btf_type *type = (const void *)at;

		if (BTF_INFO_KIND(type->info) == kind &&
		    !strcmp(name_of(types, type->name_off), name)) {
			*found = type;
			return id;
		}
		at += sizeof(*type) + tail_bytes(type);
	}
	return 0;
}

/* The place of a member among the members, and its offset in bytes; or -1. */
static int find_member(const struct types *types, const struct btf_type *type, const char *name,
		       uint32_t *offset)
{
	const struct btf_member *members = (const void *)(type + 1);

	for (unsigned int i = 0; i < BTF_INFO_VLEN(type->info); i++)
		if (!strcmp(name_of(types, members[i].name_off), name)) {
			*offset = BTF_MEMBER_BIT_OFFSET(members[i].offset) / 8;
			return (int)i;
		}
	return -1;
}

static int read_types(struct types *types)
{
	int fd = open(TYPES, O_RDONLY | O_CLOEXEC);
	size_t length = 0;
	struct stat st;
	ssize_t n = 0;

	if (fd < 0)
		return -errno;
	if (fstat(fd, &st) || !(types->bytes = malloc((size_t)st.st_size)))
		n = -1;
	while (n >= 0 && length < (size_t)st.st_size) {
		n = read(fd, types->bytes + length, (size_t)st.st_size - length);
		if (n <= 0)
			break;
		length += (size_t)n;
	}
	close(fd);
	types->header = (const void *)types->bytes;
	if (n > 0 && length > sizeof(*types->header) && types->header->magic == BTF_MAGIC)
		return 0;
	free(types->bytes);
	return -EIO;
}

/* The parts of the kernel's types that are needed. */
struct layout {
	uint32_t ops, value;		/* numbers of types */
	uint32_t value_bytes, data;	/* of the map's value, and where the operations are in it */
	uint32_t step, ring_fd;		/* offsets in the operations */
	int step_place;
	uint32_t submit, region;	/* numbers of functions */
};

static int find_layout(struct layout *layout)
{
	const struct btf_type *ops, *value, *function;
	struct types types = { NULL, NULL };
	int error = read_types(&types);

	if (error)
		return error;
	layout->ops = find_type(&types, OPS, BTF_KIND_STRUCT, &ops);
	layout->value = find_type(&types, "bpf_struct_ops_" OPS, BTF_KIND_STRUCT, &value);
	layout->submit = find_type(&types, "bpf_io_uring_submit_sqes", BTF_KIND_FUNC, &function);
	layout->region = find_type(&types, "bpf_io_uring_get_region", BTF_KIND_FUNC, &function);
	error = -ENOENT;
	if (layout->ops && layout->value && layout->submit && layout->region) {
		layout->value_bytes = value->size;
		layout->step_place = find_member(&types, ops, "loop_step", &layout->step);
		if (layout->step_place >= 0 &&
		    find_member(&types, ops, "ring_fd", &layout->ring_fd) >= 0 &&
		    find_member(&types, value, "data", &layout->data) >= 0)
			error = 0;
	}
	free(types.bytes);
	return error;
}

/* ---- The program -------------------------------------------------------------------------- */

#define INSN(op, to, from, distance, number) \
	((struct bpf_insn){ .code = (op), .dst_reg = (to), .src_reg = (from), \
			    .off = (distance), .imm = (int)(number) })
#define COPY(to, from) INSN(BPF_ALU64 | BPF_MOV | BPF_X, to, from, 0, 0)
#define SET(to, number) INSN(BPF_ALU64 | BPF_MOV | BPF_K, to, 0, 0, number)
#define ADD(to, number) INSN(BPF_ALU64 | BPF_ADD | BPF_K, to, 0, 0, number)
#define LOAD(size, to, from, at) INSN(BPF_LDX | (size) | BPF_MEM, to, from, at, 0)
#define CLEAR(size, to, at) INSN(BPF_ST | (size) | BPF_MEM, to, 0, at, 0)
#define JUMP_IF(test, one, number, by) INSN(BPF_JMP | (test) | BPF_K, one, 0, by, number)
#define JUMP_IF_REG(test, one, other, by) INSN(BPF_JMP | (test) | BPF_X, one, other, by, 0)
#define JUMP(by) INSN(BPF_JMP | BPF_JA, 0, 0, by, 0)
#define CALL(function) INSN(BPF_JMP | BPF_CALL, 0, BPF_PSEUDO_KFUNC_CALL, 0, function)
#define EXIT INSN(BPF_JMP | BPF_EXIT, 0, 0, 0, 0)

/*
 * loop_step(ring, parameters): the last entry has the number n of NOPs. n entries are cleared,
 * which makes them NOPs, and queued, and the loop ends. A NOP is complete when it is queued.
 */
static int load_program(const struct layout *layout, unsigned int entries)
{
	const int told = (int)(entries - 1) * ENTRY_BYTES;
	const struct bpf_insn program[] = {
		LOAD(BPF_DW, 6, 1, 0),
		COPY(1, 6),
		SET(2, REGION_SQ),
		SET(3, (int)entries * ENTRY_BYTES),
		CALL(layout->region),
		JUMP_IF(BPF_JEQ, 0, 0, 20),
		LOAD(BPF_W, 7, 0, (short)told),
		JUMP_IF(BPF_JGE, 7, (int)entries, 18),
		SET(1, 0),
		/* 9: the next entry */
		JUMP_IF_REG(BPF_JGE, 1, 7, 11),
		CLEAR(BPF_DW, 0, 0), CLEAR(BPF_DW, 0, 8), CLEAR(BPF_DW, 0, 16),
		CLEAR(BPF_DW, 0, 24), CLEAR(BPF_DW, 0, 32), CLEAR(BPF_DW, 0, 40),
		CLEAR(BPF_DW, 0, 48), CLEAR(BPF_DW, 0, 56),
		ADD(0, ENTRY_BYTES),
		ADD(1, 1),
		JUMP(-12),
		/* 21: all are written */
		COPY(1, 6),
		COPY(2, 7),
		CALL(layout->submit),
		SET(0, LOOP_STOP),
		EXIT,
		/* 26 */
		SET(0, LOOP_STOP),
		EXIT,
	};
	union bpf_attr attr = {
		.prog_type = BPF_PROG_TYPE_STRUCT_OPS,
		.insn_cnt = sizeof(program) / sizeof(program[0]),
		.insns = (uintptr_t)program,
		.license = (uintptr_t)"GPL",
		.prog_flags = BPF_F_SLEEPABLE,
		.attach_btf_id = layout->ops,
		.expected_attach_type = (uint32_t)layout->step_place,
	};
	long fd = syscall(SYS_bpf, BPF_PROG_LOAD, &attr, sizeof(attr));

	return fd < 0 ? -errno : (int)fd;
}

/* ---- Opening and closing ------------------------------------------------------------------ */

/* A map with a type of the kernel's must come with types of its loader's: the least there are. */
static int load_types(void)
{
	const struct {
		struct btf_header header;
		struct btf_type type;
		uint32_t bits;
		char names[8];
	} types = {
		.header = {
			.magic = BTF_MAGIC, .version = BTF_VERSION,
			.hdr_len = sizeof(types.header),
			.type_len = sizeof(types.type) + sizeof(types.bits),
			.str_off = sizeof(types.type) + sizeof(types.bits),
			.str_len = sizeof(types.names),
		},
		.type = { .name_off = 1, .info = BTF_KIND_INT << 24, .size = sizeof(int) },
		.bits = 8 * sizeof(int),
		.names = "\0int",
	};
	union bpf_attr attr = { .btf = (uintptr_t)&types, .btf_size = sizeof(types) };

	return (int)syscall(SYS_bpf, BPF_BTF_LOAD, &attr, sizeof(attr));
}

/* Gives the ring the program as its loop's step. Returns the link or -errno. */
static int install(const struct layout *layout, int ring, int program)
{
	int types = load_types();
	union bpf_attr create = {
		.map_type = BPF_MAP_TYPE_STRUCT_OPS, .key_size = sizeof(uint32_t),
		.value_size = layout->value_bytes, .max_entries = 1, .map_flags = MAP_IS_LINKED,
		.btf_fd = (uint32_t)types, .btf_vmlinux_value_type_id = layout->value,
	};
	int map = (int)syscall(SYS_bpf, BPF_MAP_CREATE, &create, sizeof(create)), link;
	char *value = calloc(1, layout->value_bytes);
	uint32_t key = 0;
	union bpf_attr update = { .map_fd = (uint32_t)map, .key = (uintptr_t)&key,
				  .value = (uintptr_t)value };
	union bpf_attr connect = { .link_create = { .prog_fd = (uint32_t)map,
						    .attach_type = ATTACH_STRUCT_OPS } };

	if (map < 0 || !value) {
		link = map < 0 ? -errno : -ENOMEM;
		free(value);
		close(types);
		return link;
	}
	close(types);
	memcpy(value + layout->data + layout->step, &(uint64_t){ (uint32_t)program },
	       sizeof(uint64_t));
	memcpy(value + layout->data + layout->ring_fd, &ring, sizeof(ring));
	link = (int)syscall(SYS_bpf, BPF_MAP_UPDATE_ELEM, &update, sizeof(update));
	if (!link)
		link = (int)syscall(SYS_bpf, BPF_LINK_CREATE, &connect, sizeof(connect));
	if (link < 0)
		link = -errno;
	free(value);
	close(map);
	return link;
}

/* liburing, where it is older than these flags, would write where it takes the array to be. */
static int create_ring(struct bpf_loop *loop, unsigned int entries)
{
	const int access = PROT_READ | PROT_WRITE, flags = MAP_SHARED | MAP_POPULATE;
	size_t bytes = entries * sizeof(struct io_uring_sqe);
	int error;

	loop->params = (struct io_uring_params){
		.flags = IORING_SETUP_SINGLE_ISSUER | IORING_SETUP_DEFER_TASKRUN |
			 SETUP_NO_SQARRAY | SETUP_SQ_REWIND,
	};
	loop->ring = (int)syscall(SYS_io_uring_setup, entries, &loop->params);
	if (loop->ring < 0)
		return -errno;
	loop->queues_bytes = loop->params.cq_off.cqes +
			     loop->params.cq_entries * sizeof(struct io_uring_cqe);
	loop->queues = mmap(NULL, loop->queues_bytes, access, flags, loop->ring,
			    IORING_OFF_SQ_RING);
	if (loop->queues == MAP_FAILED)
		goto close_ring;
	loop->requests = mmap(NULL, bytes, access, flags, loop->ring, IORING_OFF_SQES);
	if (loop->requests != MAP_FAILED)
		return 0;
	munmap(loop->queues, loop->queues_bytes);
close_ring:
	error = -errno;
	close(loop->ring);
	return error;
}

static void destroy_ring(struct bpf_loop *loop)
{
	munmap(loop->requests, loop->params.sq_entries * sizeof(struct io_uring_sqe));
	munmap(loop->queues, loop->queues_bytes);
	close(loop->ring);
}

int bpf_loop_open(struct bpf_loop *loop, unsigned int entries)
{
	struct layout layout;
	int error = find_layout(&layout), program;

	if (error)
		return error;
	program = load_program(&layout, entries);
	if (program < 0)
		return program;
	error = create_ring(loop, entries);
	if (!error) {
		loop->link = install(&layout, loop->ring, program);
		if (loop->link < 0) {
			error = loop->link;
			destroy_ring(loop);
		}
	}
	close(program);
	return error;
}

void bpf_loop_close(struct bpf_loop *loop)
{
	close(loop->link);
	destroy_ring(loop);
}

int bpf_loop_run(struct bpf_loop *loop, unsigned int n)
{
	const struct io_cqring_offsets *at = &loop->params.cq_off;
	const struct io_uring_cqe *results = (const void *)(loop->queues + at->cqes);
	uint32_t *head = (uint32_t *)(loop->queues + at->head), next = *head, tail;
	unsigned int mask = loop->params.cq_entries - 1;
	int completed = 0;

	*(volatile uint32_t *)(void *)&loop->requests[loop->params.sq_entries - 1] = n;
	if (syscall(SYS_io_uring_enter, loop->ring, 0, 0, 0, NULL, 0) < 0)
		return -errno;
	tail = __atomic_load_n((uint32_t *)(loop->queues + at->tail), __ATOMIC_ACQUIRE);
	while (next != tail)
		completed += results[next++ & mask].res == 0;
	__atomic_store_n(head, next, __ATOMIC_RELEASE);
	return completed;
}
