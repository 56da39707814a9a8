// SPDX-License-Identifier: GPL-2.0-only
/*
 * trapless_rdma.ko lets chosen observers read this machine's memory by RDMA READ, without its
 * processor. This file owns the module's parameters, the listener, and what ends all connections:
 * memory that comes or goes, a new key, and rmmod.
 */
#define pr_fmt(fmt) KBUILD_MODNAME ": " fmt

#include <linux/in.h>
#include <linux/in6.h>
#include <linux/inet.h>
#include <linux/memory.h>
#include <linux/module.h>
#include <linux/notifier.h>
#include <linux/security.h>
#include <net/net_namespace.h>

#include "handshake.h"
#include "observers.h"
#include "peers.h"

#define WAITING_MAX 8	/* requests for connections */
#define AGAIN_MS 5000	/* until the listener is tried again */

static char *address;
module_param(address, charp, 0444);
MODULE_PARM_DESC(address, "this machine's address on which observers are awaited");

static ushort port = TLR_PORT;
module_param(port, ushort, 0444);
MODULE_PARM_DESC(port, "the port there (18515)");

static int set_key(const char *text, const struct kernel_param *parameter)
{
	int error = tlr_handshake_set_key(text);

	if (!error)
		tlr_observers_end(false);	/* they had the old key */
	return error;
}

static const struct kernel_param_ops key_operations = { .set = set_key };
module_param_cb(key, &key_operations, NULL, 0200);
MODULE_PARM_DESC(key, "the common key, 64 hexadecimal digits; write it to this parameter's file");

static struct sockaddr_storage here;

/* Of the listener's work alone, and of exit after that. */
static struct rdma_cm_id *listener;
static bool lost, noted, stopping;
static void listen(struct work_struct *work);
static DECLARE_DELAYED_WORK(listening, listen);

static int on_event(struct rdma_cm_id *id, struct rdma_cm_event *event)
{
	if (event->event == RDMA_CM_EVENT_CONNECT_REQUEST)
		return tlr_observers_accept(id, event);
	if (id->context) {
		tlr_observers_event(id->context, event->event);
	} else if (event->event == RDMA_CM_EVENT_DEVICE_REMOVAL) {
		WRITE_ONCE(lost, true);	/* the device waits until nothing uses it */
		mod_delayed_work(system_wq, &listening, 0);
	}
	return 0;
}

/* The address may come later than the module, and go, with its device. */
static void listen(struct work_struct *work)
{
	struct rdma_cm_id *id;
	int error;

	if (READ_ONCE(stopping))
		return;
	if (READ_ONCE(lost)) {
		rdma_destroy_id(listener);
		listener = NULL;
		WRITE_ONCE(lost, false);
	}
	if (listener)
		return;
	id = rdma_create_id(&init_net, on_event, NULL, RDMA_PS_TCP, IB_QPT_RC);
	error = PTR_ERR_OR_ZERO(id);
	if (!error) {
		listener = id;	/* known before its first event */
		error = rdma_bind_addr(id, (struct sockaddr *)&here) ?:
			rdma_listen(id, WAITING_MAX);
	}
	if (!error) {
		pr_info("observers are awaited at %pISpc\n", &here);
		noted = false;
		return;
	}
	if (!IS_ERR(id))
		rdma_destroy_id(id);
	listener = NULL;
	WRITE_ONCE(lost, false);
	if (!noted)
		pr_warn("no RDMA device has the address %pISpc yet: %d\n", &here, error);
	noted = true;
	schedule_delayed_work(&listening, msecs_to_jiffies(AGAIN_MS));
}

/* An event of the listener may queue its work until the listener is gone; it then does nothing. */
static void stop_listening(void)
{
	WRITE_ONCE(stopping, true);
	cancel_delayed_work_sync(&listening);
	if (listener)
		rdma_destroy_id(listener);
	cancel_delayed_work_sync(&listening);
}

/* Registered memory must not go; new memory is in no table yet. */
static int on_memory(struct notifier_block *block, unsigned long action, void *data)
{
	if (action == MEM_GOING_OFFLINE)
		tlr_observers_end(true);
	else if (action == MEM_OFFLINE || action == MEM_CANCEL_OFFLINE)
		tlr_observers_reopen();
	else if (action == MEM_ONLINE)
		tlr_observers_end(false);
	return NOTIFY_OK;
}

static struct notifier_block memory_notifier = { .notifier_call = on_memory };

static int parse_address(void)
{
	char number[8];

	snprintf(number, sizeof(number), "%u", port);
	if (address && !inet_pton_with_scope(&init_net, AF_UNSPEC, address, number, &here))
		return 0;
	pr_err("address=%s is no address of this machine\n", address ?: "");
	return -EINVAL;
}

static int __init rdma_init(void)
{
	int error = security_locked_down(LOCKDOWN_KCORE);

	if (error)
		pr_err("this kernel is locked down: nobody may read its memory\n");
	error = error ?: parse_address();
	error = error ?: tlr_peers_init();
	error = error ?: tlr_handshake_init();
	if (error)
		goto err_handshake;	/* a key may have come as a parameter */
	error = tlr_observers_init();
	if (error)
		goto err_handshake;
	error = register_memory_notifier(&memory_notifier);
	if (error)
		goto err_connection;
	schedule_delayed_work(&listening, 0);
	return 0;

err_connection:
	tlr_observers_exit();
err_handshake:
	tlr_handshake_exit();
	return error;
}

static void __exit rdma_exit(void)
{
	stop_listening();
	tlr_observers_end(true);
	unregister_memory_notifier(&memory_notifier);
	tlr_observers_exit();
	tlr_handshake_exit();
}

module_init(rdma_init);
module_exit(rdma_exit);
MODULE_DESCRIPTION("Lets chosen observers read this machine's memory by RDMA");
MODULE_LICENSE("GPL");
