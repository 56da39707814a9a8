/* SPDX-License-Identifier: GPL-2.0-only */
/*
 * /dev/trapless: the entries and ioctls, and who may use them. This header owns the device's
 * registration and the version that the device reports.
 */
#ifndef TLK_DEVICE_H
#define TLK_DEVICE_H

#define TLK_VERSION "0.1.0"

int tlk_device_init(void);
void tlk_device_exit(void);

#endif /* TLK_DEVICE_H */
