// SPDX-License-Identifier: (GPL-2.0-only WITH Linux-syscall-note) OR MIT
//
// A walk beside filepath.WalkDir, and what ends one.

package trapless

import (
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"reflect"
	"runtime"
	"sort"
	"strings"
	"syscall"
	"testing"
	"time"
)

// A tree with more files in a folder than a block has.
func makeTree(t *testing.T) string {
	t.Helper()
	root := t.TempDir()
	for _, folder := range []string{"many", "left out/deep", "mode"} {
		if err := os.MkdirAll(filepath.Join(root, folder), 0o755); err != nil {
			t.Fatal(err)
		}
	}
	names := []string{"left out/deep/a", "left out/b", "mode/set"}
	for i := 0; i < 2*256+3; i++ {
		names = append(names, fmt.Sprintf("many/%s%d", strings.Repeat("n", 200), i))
	}
	for _, name := range names {
		if err := os.WriteFile(filepath.Join(root, name), []byte(name), 0o600); err != nil {
			t.Fatal(err)
		}
	}
	if err := os.Chmod(filepath.Join(root, "mode/set"), 0o640|fs.ModeSetuid); err != nil {
		t.Fatal(err)
	}
	if err := os.Symlink("/absent", filepath.Join(root, "mode/link")); err != nil {
		t.Fatal(err)
	}
	if err := syscall.Mkfifo(filepath.Join(root, "mode/pipe"), 0o600); err != nil {
		t.Fatal(err)
	}
	return root
}

func line(path string, mode fs.FileMode, inode, device uint64, numbers ...int64) string {
	return fmt.Sprint(path, mode, inode, device, numbers)
}

func TestWalkHasTheEntriesOfWalkDir(t *testing.T) {
	root := makeTree(t)
	var expected, found []string
	skip := filepath.Join(root, "left out")
	err := filepath.WalkDir(root, func(path string, entry fs.DirEntry, err error) error {
		info, err := entry.Info()
		if err != nil {
			return err
		}
		stat := info.Sys().(*syscall.Stat_t)
		expected = append(expected, line(path, info.Mode(), stat.Ino, stat.Dev, stat.Size, stat.Blocks,
			stat.Mtim.Nano(), stat.Ctim.Nano()))
		if path == skip {
			return fs.SkipDir
		}
		return nil
	})
	if err != nil {
		t.Fatal(err)
	}
	walk, err := NewWalk(root)
	if err != nil {
		t.Fatal(err)
	}
	defer walk.Close()
	err = walk.Each(func(entry *Entry) error {
		if entry.Err != nil {
			return entry.Err
		}
		found = append(found, line(entry.Path, entry.Mode, entry.Inode, entry.Device, entry.Size, entry.Blocks,
			entry.ModTime.UnixNano(), entry.ChangeTime.UnixNano()))
		if entry.Path == skip {
			return fs.SkipDir
		}
		return nil
	})
	if err != nil {
		t.Fatal(err)
	}
	sort.Strings(expected)
	sort.Strings(found)
	if !reflect.DeepEqual(expected, found) {
		t.Fatalf("%d entries, and %d of WalkDir", len(found), len(expected))
	}
}

func TestAnErrorEndsTheWalk(t *testing.T) {
	walk, err := NewWalk(makeTree(t))
	if err != nil {
		t.Fatal(err)
	}
	defer walk.Close()
	enough, visits := errors.New("enough"), 0
	err = walk.Each(func(entry *Entry) error {
		visits++
		return enough
	})
	if err != enough || visits != 1 {
		t.Fatal(err, visits)
	}
}

func TestARootThatIsNotThereIsAnError(t *testing.T) {
	for root, expected := range map[string]error{
		"/absent": syscall.ENOENT, "": syscall.ENOENT, "/\x00etc": syscall.EINVAL,
	} {
		if _, err := NewWalk(root); !errors.Is(err, expected) {
			t.Errorf("%q: %v", root, err)
		}
	}
}

// visited has the paths for which visit returns SkipDir once, at path.
func visited(t *testing.T, root, path string, options ...Option) string {
	t.Helper()
	walk, err := NewWalk(root, options...)
	if err != nil {
		t.Fatal(err)
	}
	defer walk.Close()
	var found []string
	err = walk.Each(func(entry *Entry) error {
		found = append(found, strings.TrimPrefix(entry.Path, root))
		if entry.Path == path {
			return fs.SkipDir
		}
		return entry.Err
	})
	if err != nil {
		t.Fatal(err)
	}
	return strings.Join(found, " ")
}

func TestSkipDirLeavesOutWhatItDoesInWalkDir(t *testing.T) {
	root := makeTree(t)
	var all []string
	filepath.WalkDir(root, func(path string, entry fs.DirEntry, err error) error {
		if len(path)-len(root) < 200 || strings.HasSuffix(path, "n255") || strings.HasSuffix(path, "n0") {
			all = append(all, path)
		}
		return err
	})
	for _, skip := range all {
		var expected []string
		err := filepath.WalkDir(root, func(path string, entry fs.DirEntry, err error) error {
			expected = append(expected, strings.TrimPrefix(path, root))
			if path == skip {
				return fs.SkipDir
			}
			return err
		})
		if found := visited(t, root, skip, ByName); err != nil || found != strings.Join(expected, " ") {
			t.Errorf("%s: %d bytes of paths", skip, len(found))
		}
	}
	if found := visited(t, root, filepath.Join(root, "left out/b"), ByName, BreadthFirst); !strings.HasPrefix(found,
		" /left out /many /mode /left out/b /many/n") || strings.Contains(found, "deep") {
		t.Errorf("%.80s", found)
	}
}

func TestAClosedWalkReturnsErrClosed(t *testing.T) {
	walk, err := NewWalk("/")
	if err != nil {
		t.Fatal(err)
	}
	visits := 0
	visit := func(entry *Entry) error {
		visits++
		walk.Close()
		return nil
	}
	for i := 0; i < 2; i++ {
		if err := walk.Each(visit); err != fs.ErrClosed || visits != 1 {
			t.Error(err, visits)
		}
		walk.Close()
	}
	if walk.Reason() != "the walk is closed" {
		t.Error(walk.Reason())
	}
}

func TestAWalkHoldsAtMost65Descriptors(t *testing.T) {
	root := t.TempDir()
	if err := os.MkdirAll(filepath.Join(root, strings.Repeat("d/", 100)), 0o755); err != nil {
		t.Fatal(err)
	}
	open := func() int {
		names, err := os.ReadDir("/proc/self/fd")
		if err != nil {
			t.Fatal(err)
		}
		return len(names)
	}
	before, most := open(), 0
	walk, err := NewWalk(root)
	if err != nil {
		t.Fatal(err)
	}
	defer walk.Close()
	err = walk.Each(func(entry *Entry) error {
		if held := open() - before; held > most {
			most = held
		}
		return entry.Err
	})
	if err != nil || most > 65 || most < 64 {
		t.Fatal(err, most)
	}
}

func TestWalksOfSeveralGoroutinesFindTheSame(t *testing.T) {
	root := makeTree(t)
	expected := visited(t, root, "", ByName)
	t.Run("at once", func(t *testing.T) {
		for i := 0; i < 8; i++ {
			t.Run("", func(t *testing.T) {
				t.Parallel()
				if visited(t, root, "", ByName) != expected {
					t.Error("other files")
				}
			})
		}
	})
}

// paths walks, and returns all paths in the order in which they come.
func paths(t *testing.T, root string, options ...Option) []string {
	t.Helper()
	walk, err := NewWalk(root, options...)
	if err != nil {
		t.Fatal(err)
	}
	defer walk.Close()
	var found []string
	err = walk.Each(func(entry *Entry) error {
		path := strings.TrimPrefix(entry.Path, root)
		if entry.Left {
			path += " left"
		}
		found = append(found, path)
		return entry.Err
	})
	if err != nil {
		t.Fatal(err)
	}
	return found
}

func TestOptionsSayHowAWalkGoes(t *testing.T) {
	root := t.TempDir()
	for _, folder := range []string{"b", "a/c"} {
		if err := os.MkdirAll(filepath.Join(root, folder), 0o755); err != nil {
			t.Fatal(err)
		}
	}
	if err := os.Symlink("../b", filepath.Join(root, "a/l")); err != nil {
		t.Fatal(err)
	}
	for _, one := range []struct {
		options  []Option
		expected string
	}{
		{[]Option{ByName}, " /a /a/c /a/l /b"},
		{[]Option{ByName, BreadthFirst}, " /a /b /a/c /a/l"},
		{[]Option{ByName, Leave}, " /a /a/c /a/c left /a/l /a left /b /b left  left"},
		{[]Option{ByName, Follow, Leave}, " /a /a/c /a/c left /a/l /a/l left /a left /b /b left  left"},
	} {
		if found := strings.Join(paths(t, root, one.options...), " "); found != one.expected {
			t.Errorf("%v: %q", one.options, found)
		}
	}
}

func TestOptionsThatExcludeEachOtherAreNamed(t *testing.T) {
	for expected, options := range map[string][]Option{
		"ByName and ByInode": {ByName, ByInode}, "Leave needs": {BreadthFirst, Leave},
	} {
		_, err := NewWalk("/", options...)
		if !errors.Is(err, syscall.EINVAL) || !strings.HasPrefix(err.Error(), expected) {
			t.Error(err)
		}
	}
	if _, err := NewWalk("/\x00"); err == nil || !strings.HasPrefix(err.Error(), "the path has a zero byte") {
		t.Error(err)
	}
}

// /proc is a file system of its own, in every root.
func TestAWalkOfOneDeviceEntersNoOther(t *testing.T) {
	walk, err := NewWalk("/", OneDevice, BreadthFirst)
	if err != nil {
		t.Fatal(err)
	}
	defer walk.Close()
	var device uint64
	seen := 0
	err = walk.Each(func(entry *Entry) error {
		if entry.Depth == 0 {
			device = entry.Device
		}
		if entry.Path == "/proc" && entry.Device != device {
			seen++
		}
		if strings.HasPrefix(entry.Path, "/proc/") {
			t.Fatal(entry.Path)
		}
		if entry.Depth == 2 {
			return fs.SkipAll
		}
		return nil
	})
	if err != nil || seen != 1 {
		t.Fatal(err, seen)
	}
}

func TestAnEntryHasTheTimesOfItsFile(t *testing.T) {
	file := filepath.Join(t.TempDir(), "file")
	if err := os.WriteFile(file, nil, 0o600); err != nil {
		t.Fatal(err)
	}
	if err := os.Chtimes(file, time.Unix(1, 2), time.Unix(3, 4)); err != nil {
		t.Fatal(err)
	}
	walk, err := NewWalk(file)
	if err != nil {
		t.Fatal(err)
	}
	defer walk.Close()
	err = walk.Each(func(entry *Entry) error {
		if !entry.AccessTime.Equal(time.Unix(1, 2)) || !entry.ModTime.Equal(time.Unix(3, 4)) {
			t.Error(entry.AccessTime, entry.ModTime)
		}
		return entry.Err
	})
	if err != nil {
		t.Fatal(err)
	}
}

// errorsOf walks, and returns the entries that have an error by their paths.
func errorsOf(t *testing.T, root string, options ...Option) map[string]*Entry {
	t.Helper()
	walk, err := NewWalk(root, options...)
	if err != nil {
		t.Fatal(err)
	}
	defer walk.Close()
	kept := map[string]*Entry{}
	err = walk.Each(func(entry *Entry) error {
		if entry.Err != nil {
			kept[strings.TrimPrefix(entry.Path, root)] = entry
		}
		return nil
	})
	if err != nil {
		t.Fatal(err)
	}
	return kept
}

// Root may read everything, so this thread's file access is that of another user.
func TestAFileWithoutAttributesIsNotRegular(t *testing.T) {
	root := t.TempDir()
	closed := filepath.Join(root, "closed")
	for _, name := range []string{"closed/a", "closed/b", "unreadable/c"} {
		path := filepath.Join(root, name)
		os.Mkdir(filepath.Dir(path), 0o755)
		if err := os.WriteFile(path, nil, 0o644); err != nil {
			t.Fatal(err)
		}
	}
	for path, mode := range map[string]fs.FileMode{
		filepath.Dir(root): 0o755, closed: 0o744, filepath.Join(root, "unreadable"): 0o711,
	} {
		if err := os.Chmod(path, mode); err != nil {
			t.Fatal(err)
		}
	}
	runtime.LockOSThread()
	defer runtime.UnlockOSThread()
	user, _, _ := syscall.RawSyscall(syscall.SYS_SETFSUID, 1000, 0, 0)
	defer syscall.RawSyscall(syscall.SYS_SETFSUID, user, 0, 0)
	found := errorsOf(t, root)
	if len(found) != 3 {
		t.Fatal(found)
	}
	for _, name := range []string{"/closed/a", "/closed/b"} {
		if entry := found[name]; entry.Mode != fs.ModeIrregular || entry.Err != syscall.EACCES || entry.Depth != 2 {
			t.Error(entry)
		}
	}
	if entry := found["/unreadable"]; entry.Mode != fs.ModeDir|0o711 || entry.Inode == 0 {
		t.Error(entry)
	}
}

func TestALinkToADirectoryAboveIsACycle(t *testing.T) {
	root := t.TempDir()
	if err := os.Symlink(".", filepath.Join(root, "link")); err != nil {
		t.Fatal(err)
	}
	if found := errorsOf(t, root); len(found) != 0 {
		t.Error(found)
	}
	found := errorsOf(t, root, Follow)
	if entry := found["/link"]; len(found) != 1 || entry.Err != syscall.ELOOP || !entry.Mode.IsDir() {
		t.Error(found)
	}
}

func TestADirectoryThatIsSkippedDoesNotComeOnceMore(t *testing.T) {
	root := makeTree(t)
	found := visited(t, root, filepath.Join(root, "many"), ByName, Leave)
	if strings.Count(found, " /many") != 1 || strings.Count(found, " /mode") < 2 {
		t.Error(found)
	}
}

func TestAWalkCountsWhatItDoes(t *testing.T) {
	walk, err := NewWalk(makeTree(t))
	if err != nil {
		t.Fatal(err)
	}
	visits := uint64(0)
	err = walk.Each(func(entry *Entry) error {
		visits++
		return entry.Err
	})
	stats, failed := walk.Stats()
	if err != nil || failed != nil || stats.Entries != visits || stats.Directories != 5 {
		t.Error(err, failed, stats)
	}
	if plain := walk.Reason() != ""; plain != (stats.Requests == 0) || plain != (stats.Calls > visits) ||
		plain != (stats.Crossings == stats.Calls) {
		t.Error(stats)
	}
	walk.Close()
	if _, err := walk.Stats(); err != fs.ErrClosed {
		t.Error(err)
	}
}
