/* SPDX-License-Identifier: GPL-2.0-only */
/* Records each delivery of a signal as why the kernel is being left: TLK_ENTRY_SIGNAL. */
#ifndef TLK_PROBE_SIGNAL_H
#define TLK_PROBE_SIGNAL_H

int tlk_probe_signals_start(void);
void tlk_probe_signals_stop(void);

#endif /* TLK_PROBE_SIGNAL_H */
