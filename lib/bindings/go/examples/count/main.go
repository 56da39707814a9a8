// SPDX-License-Identifier: (GPL-2.0-only WITH Linux-syscall-note) OR MIT
//
// Prints how long a file takes in a walk, and a call alone and in batches. In `trapless lab --icount` a
// nanosecond is an instruction. To count a call of your own, add a row.

package main

import (
	"fmt"
	"io/fs"
	"log"
	"os"
	"path/filepath"
	"runtime/debug"
	"syscall"
	"time"

	trapless "trapless.example/go"
)

const callsMax, repeats = 64, 20

type row struct {
	name  string
	plain func()
	queue func(batch *trapless.Batch)
}

var (
	one, many syscall.Stat_t
	rows      = []row{
		{"getppid",
			func() { os.Getppid() },
			func(batch *trapless.Batch) { batch.Add(syscall.SYS_GETPPID) }},
		{"lstat /",
			func() { check(syscall.Lstat("/", &one)) },
			func(batch *trapless.Batch) {
				batch.Add(syscall.SYS_LSTAT, batch.Path("/"), trapless.Address(batch, &many))
			}},
	}
)

func check(err error) {
	if err != nil {
		log.Fatal(err)
	}
}

func together(batch *trapless.Batch, calls int, queue func(*trapless.Batch)) {
	for i := 0; i < calls; i++ {
		queue(batch)
	}
	results, err := batch.Flush()
	check(err)
	for _, result := range results {
		check(result.Err())
	}
}

// The nanoseconds a call: the least of some repeats, because an interrupt falls into others.
func least(calls int, do func()) float64 {
	shortest := time.Duration(1<<63 - 1)
	for i := 0; i < repeats; i++ {
		begin := time.Now()
		do()
		if took := time.Since(begin); took < shortest {
			shortest = took
		}
	}
	return float64(shortest) / float64(calls)
}

func countWalk(tree string) {
	files := 0
	byWalkDir := least(1, func() {
		files = 0
		check(filepath.WalkDir(tree, func(path string, entry fs.DirEntry, err error) error {
			check(err)
			files++
			_, err = entry.Info()
			return err
		}))
	})
	byWalk := least(1, func() {
		visited := 0
		walk, err := trapless.NewWalk(tree)
		check(err)
		defer walk.Close()
		check(walk.Each(func(entry *trapless.Entry) error {
			visited++
			return entry.Err
		}))
		if visited != files {
			log.Fatal("not the same files")
		}
	})
	fmt.Printf("a file of %s: %.0f by filepath.WalkDir, %.0f by a walk\n",
		tree, byWalkDir/float64(files), byWalk/float64(files))
}

func countCalls(batch *trapless.Batch, row row) {
	alone := func(calls int) float64 {
		return least(calls, func() {
			for i := 0; i < calls; i++ {
				row.plain()
			}
		})
	}
	batched := func(calls int) float64 {
		return least(calls, func() { together(batch, calls, row.queue) })
	}
	fmt.Printf("%s: %.0f alone, %.0f in a batch of 32; ", row.name, alone(32), batched(32))
	calls := callsMax + 1
	for calls > 1 && batched(calls-1) < alone(calls-1) {
		calls--
	}
	if calls <= callsMax {
		fmt.Printf("batches take less from %d calls on\n", calls)
	} else {
		fmt.Printf("no batch of up to %d takes less\n", callsMax)
	}
}

func main() {
	debug.SetGCPercent(-1) // a collection would be counted
	batch, err := trapless.NewBatch(callsMax)
	check(err)
	defer batch.Close()
	countWalk("/bin/")
	for _, row := range rows {
		countCalls(batch, row)
	}
	if one.Ino != many.Ino {
		log.Fatal("not the same file")
	}
	if reason := batch.Reason(); reason != "" {
		fmt.Println("one by one:", reason)
	}
}
