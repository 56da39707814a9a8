/* SPDX-License-Identifier: (GPL-2.0-only WITH Linux-syscall-note) OR MIT */
/*
 * libuv's stable interface, as far as addon.c needs it: a descriptor that the loop waits for. Node
 * exports these functions, and few machines have uv.h.
 */
#ifndef TRAPLESS_NODE_LIBUV_H
#define TRAPLESS_NODE_LIBUV_H

#include <stddef.h>

struct uv_loop_s;
size_t uv_handle_size(int type);
int uv_poll_init(struct uv_loop_s *loop, void *handle, int fd);
int uv_poll_start(void *handle, int events, void (*ready)(void *, int, int));
void uv_close(void *handle, void (*closed)(void *));
void uv_ref(void *handle);
void uv_unref(void *handle);
#define UV_POLL 8
#define UV_READABLE 1

#endif /* TRAPLESS_NODE_LIBUV_H */
