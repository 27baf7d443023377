//go:build unix

package session

import (
	"context"
	"fmt"
	"os"
	"time"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/csi-reclaimer/csi-reclaimer/test/framework/controlplane"
)

// AdminUser is whom the audit log has for the users here.
const AdminUser = "admin"

// quietFor is the time without requests after which a count is complete: Events are written late.
const quietFor = 500 * time.Millisecond

// Quiet waits until the audit log, if one is kept, no longer grows.
func (env *Environment) Quiet(ctx context.Context) error {
	if !env.Kind.audits() {
		return nil
	}
	last := int64(-1)
	return Until(ctx, quietFor, "the audit log no longer grows", func() (bool, error) {
		before := last
		info, err := os.Stat(env.Cluster.AuditLog())
		if err == nil {
			last = info.Size()
		}
		return last == before, err
	})
}

// AuditComplete returns once the audit log has a request that it makes itself. The log is written before a request
// ends, so it then has all requests that ended before.
func (env *Environment) AuditComplete(ctx context.Context) error {
	name := fmt.Sprintf("marker-%d", env.Rounds.Add(1))
	_, err := env.Users[0].CoreV1().ConfigMaps(env.Namespace).Get(ctx, name, metav1.GetOptions{})
	if err != nil && !apierrors.IsNotFound(err) {
		return err
	}
	return Until(ctx, 20*time.Millisecond, "the audit log is complete", func() (bool, error) {
		marks, err := env.Cluster.AuditEventsOf(AdminUser, func(e controlplane.AuditEvent) bool { return e.Name == name })
		return len(marks) > 0, err
	})
}
