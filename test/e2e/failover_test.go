//go:build unix

package e2e

import (
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"

	rbacv1 "k8s.io/api/rbac/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/csi-reclaimer/csi-reclaimer/mock-driver/faults"
	"github.com/csi-reclaimer/csi-reclaimer/test/controlplane"
	"github.com/csi-reclaimer/csi-reclaimer/test/daemon"
	"github.com/csi-reclaimer/csi-reclaimer/test/storage"
)

// competing are flags of one of several replicas, with a lease that a test can wait for.
func competing(identity string) []string {
	return []string{"--leader-election-identity=" + identity, "--leader-election-lease-duration=3s",
		"--leader-election-renew-deadline=2s", "--leader-election-retry-period=500ms"}
}

// second makes another service account with the rights of the stage's, so that the audit log tells two replicas
// apart, and returns its user and a kubeconfig file for it.
func (s *stage) second(account string) (user, kubeconfig string) {
	s.t.Helper()
	config, err := s.plane.ServiceAccount(s.ctx, s.Namespace, account)
	s.must(err)
	kubeconfig = filepath.Join(s.t.TempDir(), "kubeconfig")
	s.must(controlplane.WriteKubeconfig(kubeconfig, config))
	first := rbacv1.Subject{Kind: rbacv1.ServiceAccountKind, Namespace: s.Namespace, Name: s.user[strings.LastIndex(s.user, ":")+1:]}
	also := rbacv1.Subject{Kind: rbacv1.ServiceAccountKind, Namespace: s.Namespace, Name: account}
	wide, err := s.client.RbacV1().ClusterRoleBindings().List(s.ctx, metav1.ListOptions{})
	s.must(err)
	for _, binding := range wide.Items {
		if slices.Contains(binding.Subjects, first) {
			binding.Subjects = append(binding.Subjects, also)
			_, err := s.client.RbacV1().ClusterRoleBindings().Update(s.ctx, &binding, metav1.UpdateOptions{})
			s.must(err)
		}
	}
	narrow, err := s.client.RbacV1().RoleBindings(s.Namespace).List(s.ctx, metav1.ListOptions{})
	s.must(err)
	for _, binding := range narrow.Items {
		if slices.Contains(binding.Subjects, first) {
			binding.Subjects = append(binding.Subjects, also)
			_, err := s.client.RbacV1().RoleBindings(s.Namespace).Update(s.ctx, &binding, metav1.UpdateOptions{})
			s.must(err)
		}
	}
	return "system:serviceaccount:" + s.Namespace + ":" + account, kubeconfig
}

// expectSilence waits until a former leader has ended, and checks that it wrote nothing to the API server after this
// moment.
func (s *stage) expectSilence(former *daemon.Daemon, user string, since time.Time) {
	s.t.Helper()
	select {
	case <-former.Done():
	case <-s.soon().Done():
		s.t.Fatal("the former leader did not end")
	}
	took := time.Since(since).Round(time.Millisecond)
	if err := former.Err(); err == nil || !strings.Contains(err.Error(), "exit status 1") {
		s.t.Errorf("it ended with %v, want exit status 1", err)
	}
	if !strings.Contains(former.LogTail(20), "lost the leader election lease") {
		s.t.Errorf("it does not say why it ended:\n%s", former.LogTail(5))
	}
	s.t.Logf("the former leader ended %v after it went on", took)
	written, err := s.plane.AuditEventsOf(user, func(e controlplane.AuditEvent) bool {
		// That it stopped leading it may say.
		return !e.Received.Before(since) && !slices.Contains([]string{"get", "list", "watch"}, e.Verb) && !strings.Contains(e.UserAgent, "leader-election")
	})
	s.must(err)
	what := map[string]int{}
	for _, e := range written {
		what[e.Verb+" "+e.Resource]++
	}
	if len(what) > 0 {
		s.t.Errorf("the former leader wrote after its lease had run out: %v", what)
	}
}

// ending starts a program that is to end by itself, with an error, and waits until it leads.
func (s *stage) ending(o daemon.Options) *daemon.Daemon {
	s.t.Helper()
	o.Dir = s.t.TempDir() // its log is looked at after its end
	d, err := daemon.Start(s.ctx, o)
	s.must(err)
	s.t.Cleanup(func() {
		d.Kill()
		if s.t.Failed() {
			s.t.Logf("log of the former leader:\n%s", d.LogTail(40))
		}
	})
	s.must(d.WaitReady(s.soon()))
	s.must(d.WaitLog(s.soon(), "Became the leader"))
	return d
}

// TestAFormerLeaderThatGoesOnDoesNothing stops the leader for longer than its lease while volumes are being deleted,
// and lets it go on when the next leader has deleted all.
func TestAFormerLeaderThatGoesOnDoesNothing(t *testing.T) {
	t.Parallel()
	s := newStage(t)
	user, kubeconfig := s.second("former")
	flags := func(identity string) []string {
		return slices.Concat(eager(), []string{"--leader-election", "--leader-election-namespace=" + s.Namespace, "--worker-threads=4"}, competing(identity))
	}
	former := s.ending(daemon.Options{
		Name: "csi-reclaimer", Binary: program,
		Args: append([]string{"--csi-address=" + s.driver.Socket(), "--kubeconfig=" + kubeconfig}, flags("former")...),
	})
	next := s.sidecar(flags("next")...)

	any := func(int) storage.Spec { return storage.Spec{Dynamic: true} }
	underway, waiting := s.makeMany(30, any), s.makeMany(60, any)
	all := slices.Concat(underway, waiting)
	s.waitAll(all, "protected", isProtected)
	s.must(s.driver.SetFaults(s.ctx, faults.Plan{Rules: []faults.Rule{
		{Method: "DeleteVolume", Action: faults.Delay, Delay: faults.Duration(100 * time.Millisecond)},
	}}))
	s.all(all, func(vol *storage.Volume) error { return vol.DeletePV(s.ctx) })
	s.all(underway, func(vol *storage.Volume) error { return vol.DeleteClaim(s.ctx) })
	s.eventually("the leader deletes volumes", func() bool { return len(s.deletionsAll()) >= 4 })
	pid := former.PID()
	s.must(former.Pause())
	s.all(waiting, func(vol *storage.Volume) error { return vol.DeleteClaim(s.ctx) })
	s.must(next.WaitLog(s.soon(), "Became the leader"))
	s.waitAll(all, "gone", isGone)

	resumed := time.Now()
	s.must(former.Resume())
	s.expectSilence(former, user, resumed)

	disk := s.onDiskAll()
	calls, err := s.driver.Calls("DeleteVolume")
	s.must(err)
	byFormer, byNext := map[string]int{}, map[string]int{}
	late := 0
	for _, call := range calls {
		switch {
		case call.PID != pid:
			byNext[call.Volume]++
		case call.Received.After(resumed):
			late++
		default:
			byFormer[call.Volume]++
		}
	}
	if late > 0 {
		t.Errorf("the former leader sent %d DeleteVolume calls after its lease had run out", late)
	}
	for _, vol := range all {
		// What the former leader had in hand when it stopped may have been done, unheard.
		if disk[vol.Handle] || byNext[vol.Handle] > 1 || byFormer[vol.Handle]+byNext[vol.Handle] < 1 {
			t.Errorf("volume %s: on disk %v, %d DeleteVolume calls by the former leader, %d by the next", vol.Handle, disk[vol.Handle], byFormer[vol.Handle], byNext[vol.Handle])
		}
	}
	for _, vol := range waiting {
		if byFormer[vol.Handle] != 0 || byNext[vol.Handle] != 1 {
			t.Errorf("volume %s: %d DeleteVolume calls by the former leader, %d by the next, want 1 by the next", vol.Handle, byFormer[vol.Handle], byNext[vol.Handle])
		}
	}
	s.expectNoReports(waiting, "ReclaimAbandoned", "VolumeLeftBehind")
	t.Logf("%d volumes were deleted by the former leader before it stopped, %d by the next", len(byFormer), len(byNext))
}

// expectNoReports checks that there is no Event with these reasons about any of the PVs.
func (s *stage) expectNoReports(vols []*storage.Volume, reasons ...string) {
	s.t.Helper()
	names := map[string]bool{}
	for _, vol := range vols {
		names[vol.Name] = true
	}
	for _, reason := range reasons {
		list, err := s.client.CoreV1().Events(metav1.NamespaceDefault).List(s.ctx, metav1.ListOptions{FieldSelector: "reason=" + reason})
		s.must(err)
		told := 0
		for _, e := range list.Items {
			if names[e.InvolvedObject.Name] {
				told++
			}
		}
		if told > 0 {
			s.t.Errorf("%d Events %s about volumes that were deleted as they should be", told, reason)
		}
	}
}

// TestAFormerVolumeGuardThatGoesOnWritesNothing makes PVs of an in-tree plugin at the moment in which the former leader
// goes on: it would protect them as the leader does.
func TestAFormerVolumeGuardThatGoesOnWritesNothing(t *testing.T) {
	t.Parallel()
	s := newInTree(t, controlplane.V1_30)
	user, kubeconfig := s.second("former")
	binary, err := guardProgram()
	s.must(err)
	former := s.ending(daemon.Options{
		Name: guardName, Binary: binary,
		Args: append([]string{"--kubeconfig=" + kubeconfig, "--leader-election-namespace=" + s.Namespace}, competing("former")...),
	})
	next := s.guard(competing("next")...)
	s.waitGuarded(s.folder())
	s.must(former.Pause())
	s.must(next.WaitLog(s.soon(), "Became the leader"))
	s.folders(20)

	resumed := time.Now()
	s.must(former.Resume())
	s.folders(20)
	s.expectSilence(former, user, resumed)
}
