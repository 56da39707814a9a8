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
	"sort"
	"strings"
	"syscall"
	"testing"
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

func line(path string, mode fs.FileMode, size int64, modified int64) string {
	return fmt.Sprint(path, mode, size, modified)
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
		expected = append(expected, line(path, info.Mode(), info.Size(), info.ModTime().UnixNano()))
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
		found = append(found, line(entry.Path, entry.Mode, entry.Size, entry.ModTime.UnixNano()))
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
		if _, err := NewWalk(root); err != expected {
			t.Errorf("%q: %v", root, err)
		}
	}
}
