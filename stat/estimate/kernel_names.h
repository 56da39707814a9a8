/* SPDX-License-Identifier: GPL-2.0-only */
/*
 * The kernel's names that the module's loop over a batch uses, for a program in user space. Each
 * <linux/...> that kmod/ring/batch.c includes is a file that the Makefile writes, and leads here.
 *
 * What is on the path of a request does what the kernel's does, by the same kinds of instructions:
 * the thread is found through one load, a reference to a file is a locked instruction. What is not
 * on it is declared only.
 */
#ifndef ESTIMATE_KERNEL_H
#define ESTIMATE_KERNEL_H

#include <stdbool.h>
#include <stddef.h>
#include <linux/types.h>

typedef __u8 u8;
typedef __u32 u32;
typedef __s32 s32;
typedef __u64 u64;

#undef __always_inline
#define __always_inline inline __attribute__((always_inline))
#define noinline __attribute__((noinline))
#define likely(x) __builtin_expect(!!(x), 1)
#define unlikely(x) __builtin_expect(!!(x), 0)
#define static_assert _Static_assert
#define BUILD_BUG_ON(condition) _Static_assert(!(condition), #condition)
#define BIT(n) (1ul << (n))
#define BIT_ULL(n) (1ull << (n))
#define container_of(pointer, type, member) \
	((type *)((char *)(pointer) - __builtin_offsetof(type, member)))
#define min(a, b) ({ __typeof__(a) a_ = (a), b_ = (b); a_ < b_ ? a_ : b_; })

#define READ_ONCE(x) (*(const volatile __typeof__(x) *)&(x))
#define WRITE_ONCE(x, value) (*(volatile __typeof__(x) *)&(x) = (value))
#define data_race(x) (x)
#define barrier() __asm__ volatile("" : : : "memory")
/* x86 orders these by itself. */
#define smp_store_release(p, value) do { barrier(); WRITE_ONCE(*(p), value); } while (0)
#define smp_load_acquire(p) ({ __typeof__(*(p)) value_ = READ_ONCE(*(p)); barrier(); value_; })
#define smp_mb__after_atomic() barrier()

#define EINTR 4
#define EBUSY 16
#define EINVAL 22
#define EPERM 1
#define EDEADLK 35
#define EOPNOTSUPP 95
#define ENOSYS 38
#define ERESTARTSYS 512
#define ENOIOCTLCMD 515

typedef struct {
	int counter;
} atomic_t;

typedef struct {
	long counter;
} atomic64_t;

static __always_inline int atomic_read(const atomic_t *v)
{
	return READ_ONCE(v->counter);
}

static __always_inline void atomic_inc(atomic_t *v)
{
	__asm__ volatile("lock incl %0" : "+m"(v->counter) : : "memory");
}

static __always_inline void atomic_dec(atomic_t *v)
{
	__asm__ volatile("lock decl %0" : "+m"(v->counter) : : "memory");
}

static __always_inline void atomic64_add(long n, atomic64_t *v)
{
	__asm__ volatile("lock addq %1, %0" : "+m"(v->counter) : "er"(n) : "memory");
}

static __always_inline void atomic64_inc(atomic64_t *v)
{
	__asm__ volatile("lock incq %0" : "+m"(v->counter) : : "memory");
}

struct pt_regs {
	unsigned long r15, r14, r13, r12, bp, bx, r11, r10, r9, r8, ax, cx, dx, si, di, orig_ax;
	unsigned long ip, cs, flags, sp, ss;
};

typedef long (*sys_call_ptr_t)(const struct pt_regs *regs);

/*
 * A static call is a call of the function that it was set to; loop.c has these functions. A static
 * branch is the instruction that stands there in a running kernel, and the build chooses which one.
 */
#define DECLARE_STATIC_CALL(name, func) __typeof__(func) name##_target
#define static_call(name) name##_target
#define DECLARE_STATIC_KEY_FALSE(name)
#define static_branch_unlikely(key) estimate_branch()
#ifdef LOOP_HOT
#define ESTIMATE_BRANCH "jmp %l[yes]"
#else
#define ESTIMATE_BRANCH ".byte 0x0f, 0x1f, 0x44, 0, 0"
#endif

static __always_inline bool estimate_branch(void)
{
	__asm__ goto(ESTIMATE_BRANCH : : : : yes);
	return false;
yes:
	return true;
}

struct callback_head {
	struct callback_head *next;
	void (*func)(struct callback_head *head);
};

struct files_struct {
	atomic_t count;
};

struct thread_info {
	unsigned long flags, syscall_work;
	u32 status;
};

struct task_struct {
	struct thread_info thread_info;
	char *stack;
	struct files_struct *files;
	void *mm;
	unsigned int ptrace;
};

struct file {
	atomic64_t f_count;
	void *private_data;
};

struct mm_struct;
struct page;
struct tl_setup;
struct tl_stats;
typedef unsigned long vm_flags_t;
struct vm_area_struct {
	vm_flags_t vm_flags;
};

#define THREAD_BYTES 16384

/* Found by one load, which the compiler may keep: as the kernel finds it in per-CPU memory. */
static struct task_struct *estimate_task;

static __always_inline __attribute__((const)) struct task_struct *get_current(void)
{
	struct task_struct *task;

	__asm__("movq %1, %0" : "=r"(task) : "m"(estimate_task));
	return task;
}

#define current get_current()
#define current_thread_info() (&current->thread_info)
#define current_pt_regs() ((struct pt_regs *)(current->stack + THREAD_BYTES) - 1)
#define thread_group_empty(task) ((task) != NULL)

static __always_inline struct file *get_file(struct file *file)
{
	atomic64_inc(&file->f_count);
	return file;
}

/* Ours has a name of its own, because the kernel's is the one that the module calls. */
#define fput estimate_fput
void estimate_fput(struct file *file);

#define _TIF_NOTIFY_RESUME BIT(1)
#define _TIF_SIGPENDING BIT(2)
#define _TIF_NEED_RESCHED BIT(3)
#define _TIF_NOTIFY_SIGNAL BIT(17)
#define TIF_NOTIFY_RESUME 1
#define TS_COMPAT 2
#define SYSCALL_WORK_ENTER 0x3f
#define SYSCALL_WORK_SECCOMP 1
#define VM_DONTCOPY 0
#define VM_DONTEXPAND 0
#define VM_IO 0
static inline void set_thread_flag(int flag)
{
	(void)flag;
}
static inline void clear_thread_flag(int flag)
{
	(void)flag;
}

/* compat/memlock.h is about memory, which is not on the path of a request. */
#define TLK_COMPAT_MEMLOCK_H
struct tlk_memlock {
	unsigned long pages;
};

#endif /* ESTIMATE_KERNEL_H */
