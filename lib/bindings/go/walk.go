// SPDX-License-Identifier: (GPL-2.0-only WITH Linux-syscall-note) OR MIT
//
// A tree of files with their attributes. One call of cgo brings all entries up to the next directory,
// at most 256.

package trapless

/*
#cgo pkg-config: trapless
#include <errno.h>
#include <fcntl.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <sys/sysmacros.h>
#include <trapless.h>

enum { ENTRIES = 256 };

struct entry {
	enum tl_walk_kind kind;
	int error;
	__u32 depth;
	size_t path_at, path_bytes; // in the block's paths
	dev_t device;
	struct tl_scan_entry attributes;
};

struct block {
	struct tl_walk *walk;
	unsigned int entries;
	char *paths;
	size_t used, room;
	struct entry entry[ENTRIES];
};

static int keep_path(struct block *block, const struct tl_walk_entry *from)
{
	size_t needed = block->used + from->path_bytes;

	if (needed > block->room) {
		char *paths = realloc(block->paths, 2 * needed);

		if (!paths)
			return -ENOMEM;
		block->paths = paths;
		block->room = 2 * needed;
	}
	memcpy(block->paths + block->used, from->path, from->path_bytes);
	block->used = needed;
	return 0;
}

// Brings the next entries. It ends with a directory, so that the walk may still be told not to enter
// it. Returns 1 if there may be more, 0 at the end, or -ENOMEM.
static int fill(struct block *block)
{
	const struct tl_walk_entry *from;
	int status = 1;

	block->entries = 0;
	block->used = 0;
	while (block->entries < ENTRIES && (status = tl_walk_next(block->walk, &from)) == 1) {
		struct entry *to = &block->entry[block->entries];

		to->kind = from->kind;
		to->error = from->error;
		to->depth = from->depth;
		to->path_at = block->used;
		to->path_bytes = from->path_bytes;
		memset(&to->attributes, 0, sizeof(to->attributes));
		if (from->attributes)
			to->attributes = *from->attributes;
		to->device = makedev(to->attributes.dev_major, to->attributes.dev_minor);
		if (keep_path(block, from))
			return -ENOMEM;
		block->entries++;
		if (from->kind == TL_WALK_ENTRY && S_ISDIR(to->attributes.mode))
			break;
	}
	return status;
}
*/
import "C"

import (
	"fmt"
	"io/fs"
	"strings"
	"syscall"
	"time"
	"unsafe"
)

// Walk goes through a tree of files. One goroutine at a time uses it.
type Walk struct {
	block *C.struct_block
}

// Entry is a file of the tree. A symbolic link has attributes of its own, unless it is followed.
type Entry struct {
	Path  string // the root as it was given, and names, with slashes between them
	Depth int    // 0 is the root
	// Err says why the attributes could not be read: then Mode is fs.ModeIrregular, and only Path and
	// Depth hold besides. A directory that cannot be read comes once without Err, and then again with it.
	// One that is below itself has syscall.ELOOP, and is not entered: a link, with Follow. Of these two
	// all fields hold.
	Err    error
	Mode   fs.FileMode
	Size   int64 // bytes
	Blocks int64 // of 512 bytes
	Inode  uint64
	Links  uint32
	UID    uint32
	GID    uint32
	Device uint64 // as in syscall.Stat_t

	AccessTime, ModTime, ChangeTime time.Time

	// Left: with the option Leave, the directory once more, after all entries below it.
	Left bool
}

// Option is how a walk goes. Without any it goes depth first, and follows no link.
type Option uint32

// The options of NewWalk.
const (
	BreadthFirst Option = C.TL_WALK_BREADTH_FIRST // all entries of a depth before those of the next
	Leave        Option = C.TL_WALK_LEAVE         // a directory that is entered comes once more: Entry.Left
	OneDevice    Option = C.TL_WALK_ONE_DEVICE    // directories of other file systems are not entered
	FollowRoot   Option = C.TL_WALK_FOLLOW_ROOT   // if the root is a link, what it leads to is the root
	Follow       Option = C.TL_WALK_FOLLOW        // the same for every link
	ByName       Option = C.TL_WALK_BY_NAME       // the entries of a directory by their names' bytes
	ByInode      Option = C.TL_WALK_BY_INODE      // or by inode, in which order disks read faster
)

// NewWalk begins at a directory, or at another file, which then is the only entry. It is an error if there
// is no such file. Several walks may go at once, each in a goroutine.
func NewWalk(root string, options ...Option) (*Walk, error) {
	var flags Option
	for _, option := range options {
		flags |= option
	}
	wrong := ""
	switch {
	case flags&(ByName|ByInode) == ByName|ByInode:
		wrong = "ByName and ByInode are two orders"
	case flags&(BreadthFirst|Leave) == BreadthFirst|Leave:
		wrong = "Leave needs a walk that goes depth first"
	case strings.IndexByte(root, 0) >= 0:
		wrong = "the path has a zero byte"
	}
	if wrong != "" {
		return nil, fmt.Errorf("%s: %w", wrong, syscall.EINVAL)
	}
	block := (*C.struct_block)(C.calloc(1, C.sizeof_struct_block))
	if block == nil {
		return nil, syscall.ENOMEM
	}
	path := C.CString(root)
	defer C.free(unsafe.Pointer(path))
	if err := C.tl_walk_create(&block.walk, C.AT_FDCWD, path, 0, C.uint(flags), 0); err < 0 {
		C.free(unsafe.Pointer(block))
		probe, failed := NewBatch(1)
		if failed != nil { // what the environment asks for cannot be had
			return nil, failed
		}
		probe.Close()
		return nil, syscall.Errno(-err)
	}
	return &Walk{block}, nil
}

// Close ends the walk. It may be called again, and while Each visits.
func (walk *Walk) Close() {
	if walk.block == nil {
		return
	}
	C.tl_walk_destroy(walk.block.walk)
	C.free(unsafe.Pointer(walk.block.paths))
	C.free(unsafe.Pointer(walk.block))
	walk.block = nil
}

// Reason says in words why directories are read by plain calls; empty: by compound calls of the
// module.
func (walk *Walk) Reason() string {
	if walk.block == nil {
		return "the walk is closed"
	}
	return C.GoString(C.tl_walk_reason(walk.block.walk))
}

// WalkStats counts what was done since NewWalk.
type WalkStats struct {
	Entries     uint64 // read, at most 256 more than visited
	Directories uint64 // opened
	Requests    uint64 // for many entries, that the module has answered
	Calls       uint64 // plain system calls
	Crossings   uint64 // into the kernel, for calls and requests
}

// Stats counts, as tl_walk_get_stats of C. After Close the error is fs.ErrClosed.
func (walk *Walk) Stats() (WalkStats, error) {
	if walk.block == nil {
		return WalkStats{}, fs.ErrClosed
	}
	of := C.struct_tl_walk_stats{size: C.sizeof_struct_tl_walk_stats}
	C.tl_walk_get_stats(walk.block.walk, &of) // without an error, since size is set
	return WalkStats{uint64(of.entries), uint64(of.directories), uint64(of.requests), uint64(of.calls),
		uint64(of.crossings)}, nil
}

// Each calls visit for every file; visit may keep the entry. As with filepath.WalkDir, fs.SkipDir leaves
// out what is in a directory, or, for another file, the rest of the directory it is in; fs.SkipAll ends
// the walk; any other error ends it and is returned. After Close the error is fs.ErrClosed.
func (walk *Walk) Each(visit func(entry *Entry) error) error {
	rest := "" // the directory whose further entries are left out
	for walk.block != nil {
		block := walk.block
		status := C.fill(block)
		for i := range block.entry[:block.entries] {
			from := &block.entry[i]
			entry := entryOf(block, from)
			skip := rest != "" && isNew(from) && folderOf(entry.Path) == rest
			if !skip {
				rest = ""
				err := visit(&entry)
				if err == fs.SkipAll {
					return nil
				}
				skip = err == fs.SkipDir
				if err != nil && !skip {
					return err
				}
				if walk.block == nil {
					return fs.ErrClosed
				}
				if skip && !entry.Mode.IsDir() {
					rest = folderOf(entry.Path)
				}
			}
			if skip && entry.Mode.IsDir() && from.kind == C.TL_WALK_ENTRY { // the last one of the block
				C.tl_walk_skip(block.walk)
			}
		}
		if status < 0 {
			return syscall.Errno(-status)
		}
		if status == 0 {
			return nil
		}
	}
	return fs.ErrClosed
}

// isNew says that it is an entry of a directory, and not one that comes once more.
func isNew(from *C.struct_entry) bool {
	return from.kind == C.TL_WALK_ENTRY || from.kind == C.TL_WALK_CYCLE
}

// folderOf is the path up to the last slash, and with it.
func folderOf(path string) string {
	return path[:strings.LastIndexByte(path, '/')+1]
}

var types = map[C.__u16]fs.FileMode{
	syscall.S_IFDIR: fs.ModeDir, syscall.S_IFLNK: fs.ModeSymlink, syscall.S_IFIFO: fs.ModeNamedPipe,
	syscall.S_IFSOCK: fs.ModeSocket, syscall.S_IFBLK: fs.ModeDevice,
	syscall.S_IFCHR: fs.ModeDevice | fs.ModeCharDevice,
	0:               fs.ModeIrregular, // unknown
}

func modeOf(mode C.__u16) fs.FileMode {
	result := fs.FileMode(mode)&fs.ModePerm | types[mode&syscall.S_IFMT]
	for bit, named := range map[C.__u16]fs.FileMode{
		syscall.S_ISUID: fs.ModeSetuid, syscall.S_ISGID: fs.ModeSetgid, syscall.S_ISVTX: fs.ModeSticky,
	} {
		if mode&bit != 0 {
			result |= named
		}
	}
	return result
}

func entryOf(block *C.struct_block, from *C.struct_entry) Entry {
	of := &from.attributes
	path := (*C.char)(unsafe.Add(unsafe.Pointer(block.paths), from.path_at))
	entry := Entry{
		Path:   C.GoStringN(path, C.int(from.path_bytes)),
		Depth:  int(from.depth),
		Mode:   modeOf(of.mode),
		Size:   int64(of.bytes),
		Blocks: int64(of.blocks),
		Inode:  uint64(of.ino),
		Links:  uint32(of.nlink),
		UID:    uint32(of.uid),
		GID:    uint32(of.gid),
		Device: uint64(from.device),

		AccessTime: time.Unix(int64(of.atime_sec), int64(of.atime_nsec)),
		ModTime:    time.Unix(int64(of.mtime_sec), int64(of.mtime_nsec)),
		ChangeTime: time.Unix(int64(of.ctime_sec), int64(of.ctime_nsec)),
		Left:       from.kind == C.TL_WALK_LEFT,
	}
	if from.error < 0 {
		entry.Err = syscall.Errno(-from.error)
	} else if from.kind == C.TL_WALK_CYCLE {
		entry.Err = syscall.ELOOP
	}
	return entry
}
