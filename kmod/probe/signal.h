/* SPDX-License-Identifier: GPL-2.0-only */
/*
 * Records each delivery of a signal as the reason for leaving the kernel (TLK_ENTRY_SIGNAL). This
 * header owns the start and the stop; thunk.h owns the record.
 */
#ifndef TLK_PROBE_SIGNAL_H
#define TLK_PROBE_SIGNAL_H

int tlk_probe_signals_start(void);
void tlk_probe_signals_stop(void);

#endif /* TLK_PROBE_SIGNAL_H */
