# SPDX-License-Identifier: GPL-2.0-only
"""The boot menu of the image, in the language of GRUB.

Each entry becomes words of the kernel's command line, which station/boot_order.py reads. Two
entries are switches: they change a variable and show the menu again. GRUB itself takes the keys c,
e and v. Words that are given when the image is made choose an entry in advance, and how the
switches stand.
"""

from __future__ import annotations

from trapless.image.station import boot_order

KERNEL, INITRD = "/boot/vmlinuz", "/boot/initrd.img"

TEMPLATE = """\
# The boot menu of Trapless. Words for the kernel can be added with the key e.
if [ -z "$supervisor" ]; then
	set supervisor={supervisor}
	set mitigations={mitigations}
	set default={entry}
	set timeout={seconds}
	export supervisor mitigations
	if serial --unit=0 --speed=115200; then
		terminal_input --append serial
		terminal_output --append serial
	fi
else
	set timeout=-1
fi
insmod all_video
insmod regexp
set gfxpayload=keep
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
	linux {kernel} {console} $words trapless.run=$1
	initrd {initrd}
	boot
}}

menuentry "q  Run all experiments quickly, in minutes" --id=quick --hotkey=q {{ start quick }}
menuentry "f  Run all experiments in full" --id=full --hotkey=f {{ start full }}
menuentry "n  No module: estimate only" --id=estimate --hotkey=n {{ start estimate }}
menuentry "a  Ask on the machine; shell" --id=ask --hotkey=a {{ start ask }}
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

START_S = 10
"""How long a key may stop the entry that was chosen in advance."""
RUN, SUPERVISOR, MITIGATIONS_OFF = "trapless.run", "trapless.supervisor", "mitigations=off"


def text(mark: str, release: str, initrd_bytes: int, words: str = "") -> str:
    """The menu of the image with this mark; `words` are added for the kernel in every entry, but
    for those that the menu itself gives: they are what it begins with."""
    given = words.split()
    entry = boot_order.parse(words).run if any(word.startswith(f"{RUN}=") for word in given) else ""
    of_menu = (f"{RUN}=", f"{SUPERVISOR}=", MITIGATIONS_OFF)
    rest = [word for word in given if not word.startswith(of_menu)]
    return TEMPLATE.format(
        mark=mark,
        release=release,
        megabytes=initrd_bytes // 1_000_000,
        kernel=KERNEL,
        initrd=INITRD,
        console=" ".join([CONSOLE, *rest]),
        entry=entry,
        seconds=START_S if entry else -1,
        supervisor=boot_order.parse(words).supervisor,
        mitigations="off" if MITIGATIONS_OFF in given else "on",
    )
