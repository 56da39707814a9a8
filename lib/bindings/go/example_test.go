// SPDX-License-Identifier: (GPL-2.0-only WITH Linux-syscall-note) OR MIT
//
// A walk with its errors, which README.md shows.

package trapless_test

import (
	"errors"
	"fmt"
	"log"
	"os"
	"path/filepath"
	"syscall"

	trapless "trapless.example/go"
)

func treeBytes(root string) (bytes int64, err error) {
	walk, err := trapless.NewWalk(root, trapless.Follow)
	if err != nil { // there is no root
		return 0, err
	}
	defer walk.Close()
	err = walk.Each(func(entry *trapless.Entry) error {
		if errors.Is(entry.Err, syscall.ELOOP) {
			fmt.Println("a cycle:", filepath.Base(entry.Path)) // with Follow: it is not entered
		} else if entry.Err != nil {
			log.Print(entry.Path, ": ", entry.Err) // an unreadable directory: its second visit
		} else if entry.Mode.IsRegular() {
			bytes += entry.Size
		}
		return nil // or fs.SkipDir, fs.SkipAll, or an error, which Each returns
	})
	return bytes, err
}

func ExampleWalk_Each() {
	root, err := os.MkdirTemp("", "")
	if err != nil {
		log.Fatal(err)
	}
	defer os.RemoveAll(root)
	for _, err := range []error{
		os.WriteFile(filepath.Join(root, "file"), []byte("twelve bytes"), 0o600),
		os.Mkdir(filepath.Join(root, "folder"), 0o700),
		os.Symlink("..", filepath.Join(root, "folder", "link")),
	} {
		if err != nil {
			log.Fatal(err)
		}
	}
	fmt.Println(treeBytes(root))
	fmt.Println(treeBytes("/absent"))
	// Output:
	// a cycle: link
	// 12 <nil>
	// 0 no such file or directory
}
