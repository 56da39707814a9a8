// SPDX-License-Identifier: GPL-2.0-only
/*
 * Loads a kernel that stands behind it in memory, decompressed: this does what the kernel's own
 * decompressor does after it has decompressed. Where the command line allows it, the kernel gets a
 * random address in memory and another in its address space, from the same ranges.
 * unpacked_image.py writes the file of which this is the beginning.
 */
typedef unsigned char u8;
typedef unsigned int u32;
typedef unsigned long long u64;

#define KERNEL_MAP 0x80000000u		// __START_KERNEL_map, its low half
#define KERNEL_SPACE (1u << 30)		// KERNEL_IMAGE_SIZE
#define PAGE 4096u
#define PRESENT_WRITABLE 3u
#define LARGE 0x80u
#define GIGABYTES 4			// that are mapped
#define CR4_PAE (1u << 5)
#define CR4_LA57 (1u << 12)
#define CPUID_RDRAND (1u << 30)
#define CPUID_LA57 (1u << 16)
#define KASLR_FLAG 2			// of loadflags, from the decompressor to the kernel
#define XLF_5LEVEL_ENABLED 0x40
#define E820_RAM 1
#define SETUP_BYTES_MAX 16384u		// of what QEMU hands over in a list

// What unpacked_image.py knows of the kernel. The rest of the file follows: data, relocations.
struct kernel {
	u32 address;			// where the data is, and where it goes without KASLR
	u32 data_bytes;
	u32 memory_bytes;		// that the kernel takes for itself
	u32 entry;			// offset in data
	u32 align;
	u32 relocations[3];		// of 64 bits, of 32 bits subtracted, of 32 bits
};

struct setup_data {
	u64 next;
	u32 type;
	u32 bytes;
};

struct region {
	u64 start;
	u64 bytes;
	u32 type;
} __attribute__((packed));

// Struct boot_params of the kernel (arch/x86/include/uapi/asm/bootparam.h), by offset.
#define FIELD(parameters, type, offset) (*(type *)((parameters) + (offset)))
#define REGIONS(p) FIELD(p, u8, 0x1e8)
#define LOADFLAGS(p) FIELD(p, u8, 0x211)
#define RAMDISK(p) FIELD(p, u32, 0x218)
#define COMMAND_LINE(p) FIELD(p, const char *, 0x228)
#define XLOADFLAGS(p) FIELD(p, u8, 0x236)
#define SETUP_DATA(p) FIELD(p, u64, 0x250)
#define REGION(p, n) (&FIELD(p, struct region, 0x2d0 + (n) * sizeof(struct region)))

extern struct kernel kernel;

static u64 tables[3 + GIGABYTES][512] __attribute__((aligned(4096)));
static u8 setup_copy[SETUP_BYTES_MAX + 64] __attribute__((aligned(64)));
u32 cr4_bits;
u32 top_table;

static int has_word(const char *line, const char *word)
{
	while (*line) {
		const char *w = word;

		while (*line == ' ')
			line++;
		while (*w && *line == *w)
			line++, w++;
		if (!*w && (!*line || *line == ' ' || w[-1] == '='))
			return 1;
		while (*line && *line != ' ')
			line++;
	}
	return 0;
}

static void cpuid(u32 leaf, u32 *eax, u32 *ecx)
{
	u32 ebx, edx;

	asm volatile("cpuid" : "=a"(*eax), "=b"(ebx), "=c"(*ecx), "=d"(edx) : "a"(leaf), "c"(0));
}

static u32 random_below(u32 limit)
{
	u32 eax, ecx, random = 0, low, high;

	cpuid(1, &eax, &ecx);
	if (ecx & CPUID_RDRAND)
		asm volatile("rdrand %0" : "=r"(random) : : "cc");
	asm volatile("rdtsc" : "=a"(low), "=d"(high));
	random ^= (low ^ high) * 0x9e3779b1u;
	random ^= random >> 16;
	return random % limit;
}

/* 64 bytes at a time, all of the last 64, by registers that every processor of 64 bits has. */
static void copy(u32 to, u32 from, u32 bytes)
{
	u32 end = from + bytes;

	for (; from < end; from += 64, to += 64)
		asm volatile("movups (%0), %%xmm0\n\tmovups 16(%0), %%xmm1\n\t"
			     "movups 32(%0), %%xmm2\n\tmovups 48(%0), %%xmm3\n\t"
			     "movups %%xmm0, (%1)\n\tmovups %%xmm1, 16(%1)\n\t"
			     "movups %%xmm2, 32(%1)\n\tmovups %%xmm3, 48(%1)"
			     : : "r"(from), "r"(to) : "memory");
}

static void clear(u32 to, u32 bytes)
{
	u32 words = bytes / 4;

	asm volatile("rep stosl" : "+D"(to), "+c"(words) : "a"(0) : "memory");
}

/* The emulator may have put the list where the kernel goes: behind this file. */
static void rescue_setup_data(u8 *parameters)
{
	u64 *link = &SETUP_DATA(parameters);
	u32 used = 0;

	while (*link) {
		struct setup_data *node = (struct setup_data *)(u32)*link;
		u32 bytes = sizeof(*node) + node->bytes;

		if ((u32)node >= kernel.address) {
			if (used + bytes > sizeof(setup_copy)) {
				*link = 0;
				break;
			}
			copy((u32)&setup_copy[used], (u32)node, bytes);
			node = (struct setup_data *)&setup_copy[used];
			*link = (u32)node;
			used += (bytes + 63) & ~63u;
		}
		link = &node->next;
	}
}

static void relocate(const u32 *words, u32 delta)
{
	u32 base = kernel.address - (KERNEL_MAP + kernel.address);
	u32 n;

	for (n = 0; n < kernel.relocations[0]; n++)
		*(u64 *)(*words++ + base) += delta;
	for (n = 0; n < kernel.relocations[1]; n++)
		*(u32 *)(*words++ + base) -= delta;
	for (n = 0; n < kernel.relocations[2]; n++)
		*(u32 *)(*words++ + base) += delta;
}

/* An address in memory behind this file and before the initramfs, or where the kernel is now. */
static u32 random_address(u8 *parameters, u32 end)
{
	u32 n, first = (end + kernel.align - 1) & -kernel.align;

	for (n = 0; n < REGIONS(parameters); n++) {
		struct region *region = REGION(parameters, n);
		u64 stop = region->start + region->bytes;

		if (region->type != E820_RAM || region->start > first || stop <= first)
			continue;
		if (RAMDISK(parameters) >= first && RAMDISK(parameters) < stop)
			stop = RAMDISK(parameters);
		if (stop < (u64)first + kernel.memory_bytes)
			break;
		u32 slots = (u32)(stop - first - kernel.memory_bytes) / kernel.align + 1;
		return first + random_below(slots) * kernel.align;
	}
	return kernel.address;
}

static void map_memory(int five_levels)
{
	u32 n;

	tables[0][0] = (u32)tables[1] | PRESENT_WRITABLE;
	tables[1][0] = (u32)tables[2] | PRESENT_WRITABLE;
	for (n = 0; n < GIGABYTES; n++)
		tables[2][n] = (u32)tables[3 + n] | PRESENT_WRITABLE;
	for (n = 0; n < GIGABYTES * 512; n++)
		tables[3 + n / 512][n % 512] = ((u64)n << 21) | LARGE | PRESENT_WRITABLE;
	top_table = (u32)(five_levels ? tables[0] : tables[1]);
	cr4_bits = CR4_PAE | (five_levels ? CR4_LA57 : 0);
}

/* Put the kernel where it is to run; returns where it is entered. */
__attribute__((regparm(1), used)) u32 load_kernel(u8 *parameters)
{
	const char *line = COMMAND_LINE(parameters);
	const u32 *relocations = (const u32 *)(kernel.address + kernel.data_bytes);
	u32 words = kernel.relocations[0] + kernel.relocations[1] + kernel.relocations[2];
	u32 leaves, ecx, address = kernel.address;

	rescue_setup_data(parameters);
	if (words && !has_word(line, "nokaslr")) {
		u32 slots = (KERNEL_SPACE - kernel.address - kernel.memory_bytes) / kernel.align;

		relocate(relocations, random_below(slots + 1) * kernel.align);
		LOADFLAGS(parameters) |= KASLR_FLAG;
		if (!has_word(line, "mem=") && !has_word(line, "memmap="))
			address = random_address(parameters, (u32)(relocations + words));
		if (address != kernel.address)
			copy(address, kernel.address, kernel.data_bytes);
	}
	clear((u32)relocations, words * 4);	// the kernel may be there, and trusts in zeros
	cpuid(0, &leaves, &ecx);
	if (leaves >= 7)
		cpuid(7, &leaves, &ecx);
	else
		ecx = 0;
	map_memory((XLOADFLAGS(parameters) & XLF_5LEVEL_ENABLED) && (ecx & CPUID_LA57) &&
		   !has_word(line, "no5lvl"));
	return address + kernel.entry;
}
