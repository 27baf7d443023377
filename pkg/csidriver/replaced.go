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

// ErrReplaced: another driver serves the socket now, one that this process was not set up for. The Driver makes no
// call any more, and the process is to start anew.
var ErrReplaced = errors.New("the CSI driver was replaced")

// Facts are what a driver says of itself. They hold for one connection: whoever serves the socket after it may be
// another version of the driver, or another driver.
type Facts struct {
	// Name and Version are name and vendor_version of GetPluginInfo.
	Name, Version string
	// Services are the capabilities of GetPluginCapabilities.
	Services rpc.PluginCapabilitySet
	// Controller are the capabilities of ControllerGetCapabilities.
	Controller rpc.ControllerCapabilitySet
	// Segments are the driver's place (NodeGetInfo), once Driver.Segments was called.
	Segments map[string]string
}

// equal reports whether two drivers say the same.
func (f Facts) equal(other Facts) bool {
	return f.Name == other.Name && f.Version == other.Version && maps.Equal(f.Services, other.Services) &&
		maps.Equal(f.Controller, other.Controller) && maps.Equal(f.Segments, other.Segments)
}

// Require has every driver judged from now on that serves the socket after the present one. If fits returns an error,
// the process was not set up for that driver: see Replaced. It is called before the driver gets any other call, and
// its context ends with the Driver.
func (d *Driver) Require(fits func(ctx context.Context, before, after Facts) error) {
	d.judging.Lock()
	defer d.judging.Unlock()
	d.fits = fits
}

// Replaced is closed when another driver serves the socket, which has another name, or does not fit (Require).
func (d *Driver) Replaced() <-chan struct{} { return d.replaced }

// Err returns an error that wraps ErrReplaced once Replaced is closed, and nil before.
func (d *Driver) Err() error {
	d.mu.Lock()
	defer d.mu.Unlock()
	return d.err
}

// lose notes that the connection is lost. It is called before there is another one.
func (d *Driver) lose(context.Context) (reconnect bool) {
	d.mu.Lock()
	defer d.mu.Unlock()
	d.lost++
	select {
	case d.loss <- struct{}{}:
	default: // noted already
	}
	return true
}

// follow asks the driver for its facts again after each loss of the connection, until ctx ends.
func (d *Driver) follow(ctx context.Context) {
	d.running.Go(func() {
		// gRPC reconnects at the next call. The facts of the next driver are to be known before.
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

// introduce learns who serves the socket, until that is known of the present connection.
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

// accept judges a driver, and takes its facts for those of the present connection, unless connections were lost after
// the first so many.
func (d *Driver) accept(ctx context.Context, facts Facts, lost int) (known bool, err error) {
	d.judging.Lock()
	defer d.judging.Unlock()
	d.mu.Lock()
	before, another := d.facts, d.known != lost
	d.mu.Unlock()
	switch {
	case before.Name == "": // the first
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

// Known returns an error while it is not known who serves the socket: after a loss of the connection, until the driver
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

// ifKnown has a call refused as Unavailable while it is not known who serves the socket.
func (d *Driver) ifKnown() grpc.CallOption { return grpc.PerRPCCredentials(permission{d}) }

// permission is asked for each call when its connection is chosen: a check before could be followed by a loss, and the
// call would go to the next driver.
type permission struct{ *Driver }

func (p permission) GetRequestMetadata(context.Context, ...string) (map[string]string, error) {
	return nil, p.Known()
}

func (permission) RequireTransportSecurity() bool { return false }
