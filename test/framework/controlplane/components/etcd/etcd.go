// Package etcd is one member of etcd as a component of a control plane for tests.
package etcd

import (
	"errors"
	"fmt"
	"net/url"
	"os"
	"os/signal"
	"syscall"

	"go.etcd.io/etcd/server/v3/embed"
)

// Run serves one etcd member on loopback until SIGINT or SIGTERM.
//
// args are the data folder, the client port and the peer port. Writes are not
// synced to disk: a test survives the kill of a process, not of the machine.
func Run(args []string) error {
	if len(args) != 3 {
		return fmt.Errorf("want DATADIR CLIENT_PORT PEER_PORT, got %d arguments", len(args))
	}
	client := url.URL{Scheme: "http", Host: "127.0.0.1:" + args[1]}
	peer := url.URL{Scheme: "http", Host: "127.0.0.1:" + args[2]}

	cfg := embed.NewConfig()
	cfg.Dir = args[0]
	cfg.ListenClientUrls, cfg.AdvertiseClientUrls = []url.URL{client}, []url.URL{client}
	cfg.ListenPeerUrls, cfg.AdvertisePeerUrls = []url.URL{peer}, []url.URL{peer}
	cfg.InitialCluster = cfg.InitialClusterFromName(cfg.Name)
	cfg.UnsafeNoFsync = true
	cfg.LogLevel = "warn"

	stop := make(chan os.Signal, 1)
	signal.Notify(stop, syscall.SIGINT, syscall.SIGTERM)

	member, err := embed.StartEtcd(cfg)
	if err != nil {
		return fmt.Errorf("start member in %q: %w", cfg.Dir, err)
	}
	defer member.Close()
	select {
	case <-member.Server.ReadyNotify():
	case <-stop:
		return nil
	case err := <-member.Err():
		return fmt.Errorf("serve: %w", err)
	}
	select {
	case <-stop:
		return nil
	case err := <-member.Err():
		return fmt.Errorf("serve: %w", err)
	case <-member.Server.StopNotify():
		return errors.New("stopped by itself")
	}
}
