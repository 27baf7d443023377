//go:build unix

package e2e

import (
	"path/filepath"
	"sync"

	"k8s.io/client-go/rest"

	"github.com/csi-reclaimer/csi-reclaimer/test/controlplane"
	"github.com/csi-reclaimer/csi-reclaimer/test/daemon"
	"github.com/csi-reclaimer/csi-reclaimer/test/faults/proxy"
)

// crashAt plays the life of a volume with volume-guard killed right after its k-th write to a PV, and
// started again. crashed is false where there are not so many.
func (s *inTree) crashAt(account *rest.Config, k int, pvFirst bool) (crashed bool) {
	s.t.Helper()
	var (
		g    *daemon.Daemon
		dead = make(chan struct{})
		once sync.Once
	)
	line, err := proxy.Start(account, proxy.Options{Crash: func() { g.Kill(); once.Do(func() { close(dead) }) }})
	s.must(err)
	defer func() { s.must(line.Close()) }()
	s.must(line.SetRules(proxy.Rule{Verb: "write", Resource: "persistentvolumes", Nth: k, Effect: proxy.Crash}))
	direct := s.kube
	s.kube = filepath.Join(s.t.TempDir(), "proxied")
	s.must(controlplane.WriteKubeconfig(s.kube, line.Config()))
	g = s.guard("--leader-election=false")
	s.kube = direct
	restarted := make(chan error, 1)
	stop := make(chan struct{})
	go func() {
		select {
		case <-dead:
			restarted <- g.Restart()
		case <-stop:
			restarted <- nil
		}
	}()
	f := s.folder()
	s.waitGuarded(f)
	if pvFirst {
		s.must(f.DeletePV(s.ctx))
	}
	s.must(f.DeleteClaim(s.ctx))
	s.expectReclaimed(f)
	// The last write of all is seen here before it has killed anybody.
	if crashed = line.Applied() > 0; !crashed {
		close(stop)
	}
	s.must(<-restarted)
	s.must(g.Terminate())
	return crashed
}
