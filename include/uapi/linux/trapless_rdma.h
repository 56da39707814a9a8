/* SPDX-License-Identifier: (GPL-2.0-only WITH Linux-syscall-note) OR MIT */
/*
 * The messages by which trapless_rdma.ko and an observer open a connection. This header owns their
 * layout. Both sides are x86-64 machines; integers are little-endian, addresses are physical.
 *
 *   1. The observer connects with a tlr_hello as private data, and the target accepts with one.
 *      Where it refuses, its private data is a tlr_refusal.
 *   2. The observer sends a tlr_answer.
 *   3. The target sends a tlr_table. The observer then reads memory by RDMA READ, with the physical
 *      address as the remote address, and sends no further message.
 *
 * Both codes are HMAC-SHA-256 with the common key. The observer's is of the tlr_transcript, the
 * target's is of the transcript and of the whole table, whose own code is zero meanwhile.
 */
#ifndef _UAPI_LINUX_TRAPLESS_RDMA_H
#define _UAPI_LINUX_TRAPLESS_RDMA_H

#include <linux/types.h>

#define TLR_MAGIC	0x414d44524c505254ull	/* "TRPLRDMA" */
#define TLR_VERSION	1
#define TLR_PORT	18515	/* unless another is given */

#define TLR_KEY_BYTES	32
#define TLR_NONCE_BYTES	32
#define TLR_CODE_BYTES	32
#define TLR_TABLE_BYTES	65536	/* the longest table */

struct tlr_hello {
	__u64 magic;
	__u32 version;
	__u32 reserved;
	__u8 nonce[TLR_NONCE_BYTES];	/* random, new for each connection */
};

enum tlr_reason {
	TLR_PEER = 1,		/* the observer's address is not allowed */
	TLR_NO_KEY,		/* the target has no key yet */
	TLR_FULL,		/* there are as many connections as may be */
	TLR_LANGUAGE,		/* the hello is not of this version */
	TLR_VIRTUAL_DMA,	/* the device reads memory by the target's processor */
	TLR_HOTPLUG,		/* memory is being taken away or the module is being unloaded */
	TLR_RESOURCES,		/* the target lacks what a connection takes */
};

struct tlr_refusal {
	__u64 magic;
	__u32 reason;
	__u32 reserved;
};

struct tlr_answer {
	__u8 code[TLR_CODE_BYTES];
};

/* Addresses are those of IPv6; of IPv4 they are the mapped ones (::ffff:192.0.2.1). */
struct tlr_transcript {
	char label[16];
	__u8 observer_nonce[TLR_NONCE_BYTES];
	__u8 target_nonce[TLR_NONCE_BYTES];
	__u8 observer_address[16];
	__u8 target_address[16];
};

/* The labels, without a NUL: no code of one side is one of the other. */
#define TLR_LABEL_OBSERVER	"trapless observe"
#define TLR_LABEL_TARGET	"trapless targets"

/* Memory that one key reads. */
struct tlr_region {
	__u64 start;
	__u64 length;
	__u32 rkey;
	__u32 reserved;
};

/* Regions are in ascending order and do not overlap. */
struct tlr_table {
	__u64 magic;
	__u32 version;
	__u32 regions;
	__u64 vmcoreinfo;	/* the kernel's note */
	__u8 code[TLR_CODE_BYTES];
	struct tlr_region region[];
};

#define TLR_REGIONS_MAX ((TLR_TABLE_BYTES - sizeof(struct tlr_table)) / sizeof(struct tlr_region))

#endif
