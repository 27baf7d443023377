package main

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"net"
	"net/http"
	"os"
	"os/signal"
	"path/filepath"
	"strings"
	"syscall"
	"time"

	"github.com/spf13/pflag"

	"github.com/csi-reclaimer/csi-reclaimer/mock-driver/backend"
	"github.com/csi-reclaimer/csi-reclaimer/mock-driver/backend/disk"
	"github.com/csi-reclaimer/csi-reclaimer/mock-driver/backend/memory"
	"github.com/csi-reclaimer/csi-reclaimer/mock-driver/faults"
	"github.com/csi-reclaimer/csi-reclaimer/mock-driver/ledger"
	"github.com/csi-reclaimer/csi-reclaimer/mock-driver/server"
	"github.com/csi-reclaimer/csi-reclaimer/mock-driver/socket"
)

func main() {
	ctx, stop := signal.NotifyContext(context.Background(), syscall.SIGTERM, syscall.SIGINT)
	err := run(ctx, os.Args[1:], os.Stdout, os.Stderr)
	stop()
	if err != nil && !errors.Is(err, pflag.ErrHelp) && !errors.Is(err, errVersion) {
		fmt.Fprintln(os.Stderr, "mock-driver: "+strings.ReplaceAll(err.Error(), "\n", "; "))
		os.Exit(1)
	}
}

// run checks all flags before any side effect, and then serves until ctx ends.
func run(ctx context.Context, args []string, stdout, stderr io.Writer) (err error) {
	s, err := parse(args, stdout)
	if err != nil {
		return err
	}
	log := slog.New(slog.NewTextHandler(stderr, &slog.HandlerOptions{Level: s.logLevel}))
	b, unlock, err := openBackend(s)
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, unlock()) }()
	l, err := openLedger(s)
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, l.Close()) }()
	engine, err := faults.New(faults.Config{Base: faults.Latency(s.latency), FirstPage: server.FirstPageToken()})
	if err != nil {
		return err
	}
	if err := engine.Set(s.plan); err != nil {
		return err
	}
	driver, err := server.New(b, engine, l, log, s.server)
	if err != nil {
		return err
	}
	listener, err := socket.Listen(ctx, s.socket)
	if err != nil {
		return err
	}
	address, closeFaults, err := serveFaults(s, engine)
	if err != nil {
		return errors.Join(err, listener.Close())
	}
	defer func() { err = errors.Join(err, closeFaults()) }()
	announce(stdout, s, address)
	return driver.Run(ctx, listener)
}

func announce(w io.Writer, s settings, faultAddress string) {
	line := fmt.Sprintf("mock-driver: serving %s (profile %s) on unix://%s, state in %s", s.server.Name, s.profile,
		s.socket, cmp.Or(s.stateDir, "memory"))
	if s.ledger != "" {
		line += ", ledger " + s.ledger
	}
	if faultAddress != "" {
		line += ", faults at http://" + faultAddress + faults.Path
	}
	_, _ = fmt.Fprintln(w, line) // The reader may be gone.
}

// openBackend opens the state on disk and locks it for this process, or creates one in memory.
func openBackend(s settings) (_ *backend.Backend, unlock func() error, err error) {
	var volumes backend.Store[backend.Volume] = memory.Store[backend.Volume]{}
	var snapshots backend.Store[backend.Snapshot] = memory.Store[backend.Snapshot]{}
	unlock = func() error { return nil }
	if s.stateDir != "" {
		if unlock, err = disk.Lock(s.stateDir); err != nil {
			return nil, nil, err
		}
		volumes, snapshots = disk.Volumes(s.stateDir), disk.Snapshots(s.stateDir)
	}
	b, err := backend.New(volumes, snapshots, s.backend)
	if err != nil {
		return nil, nil, errors.Join(fmt.Errorf("state directory %q: %w", s.stateDir, err), unlock())
	}
	for _, v := range s.static {
		if err := b.ImportVolume(v.id, v.bytes, time.Now()); err != nil {
			return nil, nil, errors.Join(fmt.Errorf("static volume: %w", err), unlock())
		}
	}
	return b, unlock, nil
}

func openLedger(s settings) (*ledger.Writer, error) {
	if s.ledger == "" {
		return ledger.Discard(time.Now), nil
	}
	return ledger.Open(s.ledger, fmt.Sprintf("%s, profile %s", s.server.Name, s.profile), time.Now)
}

// serveFaults serves the fault plan if the flags request it, and returns its address.
func serveFaults(s settings, engine *faults.Engine) (address string, closeAll func() error, err error) {
	if s.faultAddress == "" {
		return "", func() error { return nil }, nil
	}
	l, err := faults.Listen(s.faultAddress)
	if err != nil {
		return "", nil, err
	}
	address = l.Addr().String()
	if s.faultAddressFile != "" {
		if err := writeWhole(s.faultAddressFile, address+"\n"); err != nil {
			return "", nil, errors.Join(fmt.Errorf("fault address file: %w", err), l.Close())
		}
	}
	h := &http.Server{Handler: engine.Handler(), ReadHeaderTimeout: 5 * time.Second}
	done := make(chan error, 1)
	go func() { done <- h.Serve(l) }()
	return address, func() error {
		closed := h.Close()
		if err := <-done; !errors.Is(err, http.ErrServerClosed) && !errors.Is(err, net.ErrClosed) {
			return errors.Join(err, closed)
		}
		return closed
	}, nil
}

// writeWhole writes a file atomically, because other programs wait for it to appear.
func writeWhole(path, text string) error {
	next := filepath.Join(filepath.Dir(path), "."+filepath.Base(path)+".next")
	if err := os.WriteFile(next, []byte(text), 0o644); err != nil {
		return err
	}
	return os.Rename(next, path)
}
