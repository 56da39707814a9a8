/* SPDX-License-Identifier: GPL-2.0-only */
/*
 * Keeps the module loaded while KVM may know its address. This header owns the watch for KVM;
 * call.c owns what happens to a thread that runs guests.
 */
#ifndef TLK_SUPERVISOR_KVM_H
#define TLK_SUPERVISOR_KVM_H

int tlk_supervisor_kvm_init(void);
void tlk_supervisor_kvm_exit(void);

#endif /* TLK_SUPERVISOR_KVM_H */
