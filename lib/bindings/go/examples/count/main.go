// SPDX-License-Identifier: (GPL-2.0-only WITH Linux-syscall-note) OR MIT
//
// Prints how long a file takes in a walk, and a call alone and in batches, with the module where it is
// and without it. To count a call of your own, add a row.
//
//	count [TREE]

package main

import (
	"fmt"
	"io/fs"
	"log"
	"os"
	"path/filepath"
	"runtime"
	"runtime/debug"
	"syscall"
	"time"
	"unsafe"

	trapless "trapless.example/go"
)

const callsMax, repeats = 64, 20

type row struct {
	name  string
	alone func()
	queue func(batch *trapless.Batch, calls int)
}

func queueFstat(batch *trapless.Batch, at uint64) {
	batch.Add(syscall.SYS_FSTAT, uint64(in), at)
}

var (
	file, _ = os.Open("/proc/self/exe")
	null, _ = os.OpenFile("/dev/null", os.O_WRONLY, 0)
	in, out = file.Fd(), null.Fd()
	status  = new(syscall.Stat_t)
	buffer  = make([]byte, callsMax)
	// One array for all calls is pinned once; an object of each call takes longer.
	array = make([]syscall.Stat_t, callsMax)
	each  []*syscall.Stat_t

	rows = []row{
		{"getppid",
			func() { os.Getppid() },
			func(batch *trapless.Batch, calls int) {
				for i := 0; i < calls; i++ {
					batch.Add(syscall.SYS_GETPPID)
				}
			}},
		{"lseek",
			func() { must(syscall.Seek(int(in), 0, 0)) },
			func(batch *trapless.Batch, calls int) {
				for i := 0; i < calls; i++ {
					batch.Add(syscall.SYS_LSEEK, uint64(in), 0, 0)
				}
			}},
		{"write 1 byte",
			func() { must(syscall.Write(int(out), buffer[:1])) },
			func(batch *trapless.Batch, calls int) {
				for i, at := 0, trapless.Slice(batch, buffer); i < calls; i++ {
					batch.Add(syscall.SYS_WRITE, uint64(out), at+uint64(i), 1)
				}
			}},
		{"pread 1 byte",
			func() { must(syscall.Pread(int(in), buffer[:1], 0)) },
			func(batch *trapless.Batch, calls int) {
				for i, at := 0, trapless.Slice(batch, buffer); i < calls; i++ {
					batch.Add(syscall.SYS_PREAD64, uint64(in), at+uint64(i), 1, 0)
				}
			}},
		{"fstat, array",
			func() { check(syscall.Fstat(int(in), status)) },
			func(batch *trapless.Batch, calls int) {
				for i, at := 0, trapless.Slice(batch, array); i < calls; i++ {
					queueFstat(batch, at+uint64(i)*uint64(unsafe.Sizeof(array[0])))
				}
			}},
		{"fstat, objects",
			func() { check(syscall.Fstat(int(in), status)) },
			func(batch *trapless.Batch, calls int) {
				for _, one := range each[:calls] {
					queueFstat(batch, trapless.Address(batch, one))
				}
			}},
		{"lstat /",
			func() { check(syscall.Lstat("/", status)) },
			func(batch *trapless.Batch, calls int) {
				for _, one := range each[:calls] {
					batch.Add(syscall.SYS_LSTAT, batch.Path("/"), trapless.Address(batch, one))
				}
			}},
	}
)

func check(err error) {
	if err != nil {
		log.Fatal(err)
	}
}

func must[T any](value T, err error) T {
	check(err)
	return value
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

func byWalkDir(tree string) (files int) {
	check(filepath.WalkDir(tree, func(path string, entry fs.DirEntry, err error) error {
		check(err)
		files++
		_, err = entry.Info()
		return err
	}))
	return files
}

func byWalk(tree string) (files int) {
	walk := must(trapless.NewWalk(tree))
	defer walk.Close()
	check(walk.Each(func(entry *trapless.Entry) error {
		files++
		return entry.Err
	}))
	return files
}

func alone(row row) float64 {
	return least(callsMax, func() {
		for i := 0; i < callsMax; i++ {
			row.alone()
		}
	})
}

func together(batch *trapless.Batch, row row, calls int) float64 {
	return least(calls, func() {
		row.queue(batch, calls)
		for _, result := range must(batch.Flush()) {
			check(result.Err())
		}
	})
}

func countPlainCalls(noModule *trapless.Batch, row row) {
	fmt.Printf("%-14s %6.0f %12s %10.0f  –\n", row.name, alone(row), "–", together(noModule, row, 32))
}

func countCalls(batch, noModule *trapless.Batch, row row) {
	one, least, calls := alone(row), "never", callsMax+1
	for calls > 1 && together(batch, row, calls-1) < one {
		calls--
		least = fmt.Sprint(calls, " calls")
	}
	fmt.Printf("%-14s %6.0f %12.0f %10.0f  %s\n",
		row.name, one, together(batch, row, 32), together(noModule, row, 32), least)
}

func main() {
	debug.SetGCPercent(-1) // a collection would be counted
	tree := "/bin/"
	if len(os.Args) > 1 {
		tree = os.Args[1]
	}
	for i := 0; i < callsMax; i++ {
		each = append(each, new(syscall.Stat_t))
	}
	files := byWalkDir(tree)
	if byWalk(tree) != files {
		log.Fatal("not the same files")
	}
	take := func(walk func(string) int) float64 {
		once := func() { walk(tree) }
		least(files, once)
		runtime.GC() // the memory is used again: faults of new memory would be counted
		return least(files, once)
	}
	batch := must(trapless.NewBatch(callsMax))
	defer batch.Close()
	batch.Add(syscall.SYS_GETPPID)
	must(batch.Flush())
	reason := batch.Reason()
	fmt.Println("nanoseconds; under --icount each is an instruction")
	if reason != "" {
		fmt.Println("one by one:", reason)
	}
	fmt.Printf("a file of %s: %.0f by filepath.WalkDir, ", tree, take(byWalkDir))
	if reason == "" {
		fmt.Printf("%.0f by a Walk, ", take(byWalk))
	}
	os.Setenv("TRAPLESS_BACKEND", "plain")
	noModule := must(trapless.NewBatch(callsMax))
	defer noModule.Close()
	fmt.Printf("%.0f by a Walk without the module\n\n", take(byWalk))
	fmt.Printf("%-14s %6s %12s %10s  %s\n", "a call", "alone", "batch of 32", "no module", "a batch wins from")
	for _, row := range rows {
		if reason != "" {
			countPlainCalls(noModule, row)
		} else {
			countCalls(batch, noModule, row)
		}
	}
}
