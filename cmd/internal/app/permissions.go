package app

import (
	"context"
	"slices"
	"time"

	"k8s.io/klog/v2"
	"k8s.io/utils/clock"

	"github.com/csi-reclaimer/csi-reclaimer/internal/controller"
	"github.com/csi-reclaimer/csi-reclaimer/pkg/permission"
)

// RecheckInterval is the delay between two checks while permissions, or capabilities of the driver, are missing.
const RecheckInterval = 30 * time.Second

// PermissionChecker returns the permissions that a controller lacks.
type PermissionChecker interface {
	MissingPermissions(ctx context.Context) ([]permission.Permission, error)
}

// MissingPermissions returns the permissions that at least one of the checkers lacks, without duplicates.
func MissingPermissions(ctx context.Context, of []PermissionChecker) ([]permission.Permission, error) {
	var all []permission.Permission
	for _, a := range of {
		missing, err := a.MissingPermissions(ctx)
		if err != nil {
			return nil, err
		}
		for _, p := range missing {
			if !slices.ContainsFunc(all, func(r permission.Permission) bool {
				return r.Verb == p.Verb && r.Group == p.Group && r.Resource == p.Resource &&
					r.Namespace == p.Namespace && r.Name == p.Name
			}) {
				all = append(all, p)
			}
		}
	}
	return all, nil
}

// watchPermissions reports and then logs the missing permissions, at the start and after each change. It repeats the
// check until all permissions are granted or ctx ends.
func watchPermissions(ctx context.Context, of []PermissionChecker, report func(missing []permission.Permission)) {
	var before []permission.Permission
	for {
		missing, err := MissingPermissions(ctx, of)
		switch {
		case ctx.Err() != nil:
			return
		case err != nil:
			klog.FromContext(ctx).Info("Preflight: the permissions of this program could not be reviewed; retrying", "err", err)
		case len(missing) == 0:
			report(nil)
			if len(before) > 0 {
				klog.FromContext(ctx).Info("Preflight: all permissions are granted")
			}
			return
		default:
			if !slices.Equal(missing, before) {
				report(missing)
				logMissing(ctx, missing)
			}
			before = missing
		}
		if !controller.Pause(ctx, clock.RealClock{}, RecheckInterval) {
			return
		}
	}
}

func logMissing(ctx context.Context, missing []permission.Permission) {
	for _, permission := range missing {
		klog.FromContext(ctx).Info("Preflight: "+permission.String(), "requiredForDeletion", permission.Unsafe)
	}
}

// BlockingPermissions returns messages about those missing permissions that a safe deletion requires.
func BlockingPermissions(missing []permission.Permission) (messages []string) {
	for _, permission := range missing {
		if permission.Unsafe {
			messages = append(messages, permission.String())
		}
	}
	return messages
}
