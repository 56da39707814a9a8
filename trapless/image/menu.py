# SPDX-License-Identifier: GPL-2.0-only
"""The boot menu of the image, in the language of GRUB.

Each entry becomes words of the kernel's command line, which station/order.py reads. Two entries are
switches: they change a variable and show the menu again. GRUB itself takes the keys c, e and v.
"""

from __future__ import annotations

KERNEL, INITRD = "/boot/vmlinuz", "/boot/initrd.img"

TEMPLATE = """\
# The boot menu of Trapless. Words for the kernel can be added with the key e.
if [ -z "$supervisor" ]; then
	set supervisor=on
	set mitigations=on
	export supervisor mitigations
	if serial --unit=0 --speed=115200; then
		terminal_input --append serial
		terminal_output --append serial
	fi
fi
insmod all_video
insmod regexp
set gfxpayload=keep
set timeout=-1
set medium=unknown
regexp --set=1:medium "^([a-z]+)" "$root"
# A BIOS numbers CDs from 0xe0 on, which the loader calls hd96.
if regexp "^hd(9[6-9]|1[0-2][0-9])" "$root"; then set medium=cd; fi

function start {{
	set words="trapless.mark={mark} trapless.medium=$medium trapless.supervisor=$supervisor"
	if [ "$mitigations" = off ]; then
		set words="$words mitigations=off"
	fi
	echo "Loading Linux {release} and the system, {megabytes} MB ..."
	linux {kernel} {console} $words $@
	initrd {initrd}
	boot
}}

menuentry "q  Run all experiments quickly, in minutes" --hotkey=q {{ start trapless.run=quick }}
menuentry "f  Run all experiments in full" --hotkey=f {{ start trapless.run=full }}
menuentry "n  No module: estimate only" --hotkey=n {{ start trapless.run=estimate }}
menuentry "a  Ask on the machine; shell" --hotkey=a {{ start trapless.run=ask }}
menuentry "s  Supervisor mode: $supervisor (change it)" --hotkey=s {{
	if [ "$supervisor" = on ]; then set supervisor=off; else set supervisor=on; fi
	configfile $prefix/grub.cfg
}}
menuentry "m  Mitigations of the processor's flaws: $mitigations (change it)" --hotkey=m {{
	if [ "$mitigations" = on ]; then set mitigations=off; else set mitigations=on; fi
	configfile $prefix/grub.cfg
}}
menuentry "p  Switch the machine off" --hotkey=p {{ halt }}
"""

CONSOLE = "console=ttyS0,115200 console=tty0 quiet panic=60"
"""Both consoles; the screen is the one that messages of process 1 go to."""


def text(mark: str, release: str, initrd_bytes: int, words: str = "") -> str:
    """The menu of the image with this mark; `words` are added for the kernel in every entry."""
    return TEMPLATE.format(
        mark=mark,
        release=release,
        megabytes=initrd_bytes // 1_000_000,
        kernel=KERNEL,
        initrd=INITRD,
        console=f"{CONSOLE} {words}".strip(),
    )
