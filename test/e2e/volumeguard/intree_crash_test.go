//go:build unix

package volumeguard

import (
	"path/filepath"
	"sync"

	"k8s.io/client-go/rest"

	"github.com/csi-reclaimer/csi-reclaimer/test/faults/proxy"
	"github.com/csi-reclaimer/csi-reclaimer/test/framework/controlplane"
	"github.com/csi-reclaimer/csi-reclaimer/test/framework/program"
)

// crashAt plays the life of a volume with volume-guard killed right after its k-th write to a PV, and started again.
// crashed is false if it makes fewer writes.
func (env *inTreeEnvironment) crashAt(account *rest.Config, k int, pvFirst bool) (crashed bool) {
	env.T.Helper()
	rule := proxy.Rule{Verb: "write", Resource: "persistentvolumes", Nth: k, Effect: proxy.Crash}
	return env.crash(account, rule, nil, func() {
		f := env.folder()
		env.waitGuarded(f)
		if pvFirst {
			env.Must(f.DeletePV(env.Ctx))
		}
		env.Must(f.DeleteClaim(env.Ctx))
		env.expectReclaimed(f)
	})
}

// crash plays something with volume-guard killed by the rule, and started again. crashed is false where the rule never
// applied.
func (env *environment) crash(account *rest.Config, rule proxy.Rule, flags []string, play func()) (crashed bool) {
	env.T.Helper()
	var (
		g    *program.Program
		dead = make(chan struct{})
		once sync.Once
	)
	line, err := proxy.Start(account, proxy.Options{Crash: func() { g.Kill(); once.Do(func() { close(dead) }) }})
	env.Must(err)
	defer func() { env.Must(line.Close()) }()
	env.Must(line.SetRules(rule))
	direct := env.Kubeconfig
	env.Kubeconfig = filepath.Join(env.T.TempDir(), "proxied")
	env.Must(controlplane.WriteKubeconfig(env.Kubeconfig, line.Config()))
	g = env.startVolumeGuard(append([]string{"--leader-election=false"}, flags...)...)
	env.Kubeconfig = direct
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
	play()
	// The test can see the last write of all before the write has killed volume-guard.
	if crashed = line.Applied() > 0; !crashed {
		close(stop)
	}
	env.Must(<-restarted)
	env.Must(g.Terminate())
	return crashed
}
