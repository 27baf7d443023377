//go:build linux

// Command writer runs in the pods of test nodes. It writes stamps to the volumes of its pod, at an interval,
// until it is ended:
//
//	writer [--interval 20ms] [--ignore-term] DIRECTORY...
//
// It stands still with "writer pause", and ends at once with "writer exit STATUS". The environment has POD_UID,
// POD_NAME and NODE_NAME.
package main

import (
	"errors"
	"flag"
	"fmt"
	"os"
	"os/signal"
	"path/filepath"
	"strconv"
	"syscall"
	"time"

	"golang.org/x/sys/unix"
	"k8s.io/apimachinery/pkg/types"

	"github.com/csi-reclaimer/csi-reclaimer/test/framework/nodes/stamps"
)

func main() {
	status, err := run(os.Args[1:])
	if err != nil {
		fmt.Fprintln(os.Stderr, "writer:", err)
	}
	os.Exit(status)
}

func run(args []string) (status int, err error) {
	term := make(chan os.Signal, 1)
	signal.Notify(term, syscall.SIGTERM, syscall.SIGINT)
	switch {
	case len(args) == 1 && args[0] == "pause":
		<-term
		return 0, nil
	case len(args) == 2 && args[0] == "exit":
		return strconv.Atoi(args[1])
	}
	flags := flag.NewFlagSet("writer", flag.ContinueOnError)
	interval := flags.Duration("interval", 20*time.Millisecond, "time between two writes")
	ignoreTerm := flags.Bool("ignore-term", false, "write on after SIGTERM, until it is killed")
	if err := flags.Parse(args); err != nil {
		return 2, err
	}
	if *ignoreTerm {
		signal.Ignore(syscall.SIGTERM)
	}
	if flags.NArg() == 0 {
		return 2, errors.New("no directory to write to")
	}
	var files []*os.File
	for _, dir := range flags.Args() {
		file, err := os.OpenFile(filepath.Join(dir, stamps.FileName), os.O_CREATE|os.O_WRONLY|os.O_APPEND, 0o644)
		if err != nil {
			return 1, err
		}
		files = append(files, file)
	}
	return write(files, *interval, term)
}

// write appends a stamp to each file until a signal comes.
func write(files []*os.File, interval time.Duration, end <-chan os.Signal) (status int, err error) {
	started, err := monotonic()
	if err != nil {
		return 1, err
	}
	pod := os.Getenv("POD_UID")
	stamp := stamps.Stamp{Pod: types.UID(pod), Run: fmt.Sprintf("%s-%d", pod, started), Name: os.Getenv("POD_NAME"),
		Node: os.Getenv("NODE_NAME")}
	ticker := time.NewTicker(interval)
	defer ticker.Stop()
	for {
		stamp.Seq++
		for _, file := range files {
			for refused(file, stamp.Node) {
				time.Sleep(interval)
			}
			if err := put(file, stamp); err != nil {
				return 1, err
			}
		}
		select {
		case <-end:
			return 0, nil
		case <-ticker.C:
		}
	}
}

// refused reports whether writes from the node have to wait.
func refused(file *os.File, node string) bool {
	_, err := os.Stat(filepath.Join(filepath.Dir(file.Name()), stamps.RefusedFile(node)))
	return err == nil
}

// put writes a stamp by one write(2) and waits until it is on the disk.
func put(file *os.File, stamp stamps.Stamp) (err error) {
	if stamp.Mono, err = monotonic(); err != nil {
		return err
	}
	stamp.Wall = time.Now()
	line, err := stamp.Line()
	if err != nil {
		return err
	}
	if _, err := file.Write(line); err != nil {
		return err
	}
	return file.Sync()
}

// monotonic is CLOCK_MONOTONIC, which Go's own clock shows only as differences.
func monotonic() (time.Duration, error) {
	var now unix.Timespec
	err := unix.ClockGettime(unix.CLOCK_MONOTONIC, &now)
	return time.Duration(now.Nano()), err
}
