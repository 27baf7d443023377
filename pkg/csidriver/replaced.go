package csidriver

import (
	"context"
	"errors"
	"fmt"
	"maps"

	"github.com/kubernetes-csi/csi-lib-utils/rpc"
	"google.golang.org/grpc"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/connectivity"
	"google.golang.org/grpc/status"
	"k8s.io/klog/v2"
)

// ErrReplaced: another driver now serves the socket, and this process is not set up for it. The Driver makes no more
// calls, and the process has to restart.
var ErrReplaced = errors.New("the CSI driver was replaced")

// Facts are the driver's own statements about itself. They hold for one connection, because the next one may lead to
// another version of the driver, or to another driver.
type Facts struct {
	// Name and Version are name and vendor_version of GetPluginInfo.
	Name, Version string
	// Services are the capabilities of GetPluginCapabilities.
	Services rpc.PluginCapabilitySet
	// Controller are the capabilities of ControllerGetCapabilities.
	Controller rpc.ControllerCapabilitySet
	// Segments are the driver's topology segments (NodeGetInfo), once Driver.Segments has been called.
	Segments map[string]string
}

func (f Facts) equal(other Facts) bool {
	return f.Name == other.Name && f.Version == other.Version && maps.Equal(f.Services, other.Services) &&
		maps.Equal(f.Controller, other.Controller) && maps.Equal(f.Segments, other.Segments)
}

// Require registers a check of every driver that serves the socket after the current one. An error of fits means that
// the process is not set up for that driver: see Replaced. fits runs before the driver gets any other call, and its
// context ends with the Driver. It decides by its arguments, and must not call Segments, Refresh or Require, which wait
// until it has returned.
func (d *Driver) Require(fits func(ctx context.Context, before, after Facts) error) {
	d.judging.Lock()
	defer d.judging.Unlock()
	d.fits = fits
}

// Replaced is closed when a driver with another name serves the socket, or one that does not fit (Require).
func (d *Driver) Replaced() <-chan struct{} { return d.replaced }

// Err returns an error that wraps ErrReplaced once Replaced is closed, and nil before.
func (d *Driver) Err() error {
	d.mu.Lock()
	defer d.mu.Unlock()
	return d.err
}

// lose counts a loss of the connection. csi-lib-utils calls it before it reconnects.
func (d *Driver) lose(context.Context) (reconnect bool) {
	d.mu.Lock()
	defer d.mu.Unlock()
	d.lost++
	select {
	case d.loss <- struct{}{}:
	default: // already recorded
	}
	return true
}

// follow gathers the facts again after each loss of the connection, until ctx ends.
func (d *Driver) follow(ctx context.Context) {
	d.running.Go(func() {
		// gRPC reconnects only at the next call, but the facts have to be known before that call.
		for ctx.Err() == nil {
			state := d.conn.GetState()
			if state == connectivity.Idle {
				d.conn.Connect()
			}
			d.conn.WaitForStateChange(ctx, state)
		}
	})
	d.running.Go(func() {
		for {
			select {
			case <-ctx.Done():
				return
			case <-d.loss:
			}
			for state := d.conn.GetState(); state != connectivity.Ready; state = d.conn.GetState() {
				if !d.conn.WaitForStateChange(ctx, state) {
					return
				}
			}
			if err := d.introduce(ctx); err != nil {
				if ctx.Err() == nil {
					klog.FromContext(ctx).Error(err, "Calling the CSI driver no more")
				}
				return
			}
		}
	})
}

// introduce gathers the driver's facts, until they are known for the current connection.
func (d *Driver) introduce(ctx context.Context) error {
	for {
		d.mu.Lock()
		lost := d.lost
		d.mu.Unlock()
		facts, err := d.ask(ctx)
		if err != nil {
			return err
		}
		if known, err := d.accept(ctx, facts, lost); known || err != nil {
			return err
		}
	}
}

// accept checks a driver, and stores its facts for the current connection, unless the count of losses is no longer
// lost.
func (d *Driver) accept(ctx context.Context, facts Facts, lost int) (known bool, err error) {
	d.judging.Lock()
	defer d.judging.Unlock()
	d.mu.Lock()
	before, another := d.facts, d.known != lost
	d.mu.Unlock()
	switch {
	case before.Name == "": // the first driver
	case before.Name != facts.Name:
		err = fmt.Errorf("its name was %q, and %q serves the socket now", before.Name, facts.Name)
	case d.fits != nil && another:
		err = d.fits(ctx, before, facts)
	}
	d.mu.Lock()
	defer d.mu.Unlock()
	switch {
	case d.err != nil:
		return false, d.err
	case d.lost != lost || ctx.Err() != nil:
		return false, ctx.Err()
	case err != nil:
		d.err = fmt.Errorf("%w: %w", ErrReplaced, err)
		close(d.replaced)
		return false, d.err
	}
	if before.Name != "" && !before.equal(facts) {
		klog.FromContext(ctx).Info("The CSI driver was replaced by another version of itself", "driver", facts.Name,
			"before", before.Version, "now", facts.Version)
	}
	d.facts, d.known = facts, lost
	return true, nil
}

// Known returns an error while the driver on the socket is unknown: from a loss of the connection until the driver
// has returned its name and capabilities again.
func (d *Driver) Known() error {
	d.mu.Lock()
	defer d.mu.Unlock()
	switch {
	case d.err != nil:
		return status.Error(codes.Unavailable, d.err.Error())
	case d.known != d.lost:
		return status.Error(codes.Unavailable, "the connection to the CSI driver was lost, and the driver has not yet "+
			"returned its name and capabilities again")
	}
	return nil
}

// ifKnown makes a call fail as Unavailable while the driver on the socket is unknown.
func (d *Driver) ifKnown() grpc.CallOption { return grpc.PerRPCCredentials(permission{d}) }

// permission is consulted when gRPC has chosen the connection of a call. After an earlier check the connection could
// be lost, and the call would reach the next driver.
type permission struct{ *Driver }

func (p permission) GetRequestMetadata(context.Context, ...string) (map[string]string, error) {
	return nil, p.Known()
}

func (permission) RequireTransportSecurity() bool { return false }
