//go:build model

package claims

import "github.com/csi-reclaimer/csi-reclaimer/pkg/provision"

// users are the moves of people, each as often as the budget says.
func (k *worker) users(s *state) {
	for i := range k.Claims {
		c := s.claims[i]
		k.User(s.there(i) && !c.Terminating, s.left.DeleteClaim, move{userDeletesClaim, 0, i}, func(n *scene) {
			n.left.DeleteClaim--
			n.write(i, func(c *provision.ClaimView) { c.Terminating = true })
		})
		k.User(!s.born[i] && k.free(s, i), s.left.CreateClaim, move{userCreatesClaim, 0, i}, func(n *scene) {
			n.left.CreateClaim--
			n.born[i], n.guarded[i] = true, true
			n.write(i, func(*provision.ClaimView) {})
		})
		k.User(s.there(i) && c.Protected, s.left.Strip, move{userStrips, 0, i}, func(n *scene) {
			n.left.Strip--
			n.stripped[n.name(i)] = true
			n.write(i, func(c *provision.ClaimView) { c.Protected = false })
		})
		k.User(s.there(i) && c.Bound == provision.Unbound, s.left.BindElsewhere, move{userBindsElsewhere, 0, i}, func(n *scene) {
			n.left.BindElsewhere--
			n.write(i, func(c *provision.ClaimView) { c.Bound = provision.BoundElsewhere })
		})
		p := s.pvs[i]
		k.User(p.exists() && !p.terminating, s.left.DeletePV, move{userDeletesPV, 0, i}, func(n *scene) {
			n.left.DeletePV--
			p.terminating = true
			n.setPV(i, p)
		})
	}
	for name := range k.Claims {
		k.User(!s.pvs[name].exists(), s.left.TakeName, move{userTakesName, 0, name}, func(n *scene) {
			n.left.TakeName--
			n.setPV(name, pv{claim: provision.Foreign})
		})
	}
	k.User(s.class, s.left.DeleteClass, move{userDeletesClass, 0, 0}, func(n *scene) {
		n.left.DeleteClass--
		n.setClass(false)
	})
	k.User(!s.class, s.left.CreateClass, move{userCreatesClass, 0, 0}, func(n *scene) {
		n.left.CreateClass--
		n.setClass(true)
	})
}

// cluster are the moves of Kubernetes' own controllers, and of whoever reclaims: it deletes the
// volume of a PV whose claim is gone or has another PV, and then the PV. That it does so in no
// other case, and in this one always, is what the worlds of test/model are about.
func (k *worker) cluster(s *state) {
	for i := range k.Claims {
		c := s.claims[i]
		name := k.name(i)
		k.Can(s.there(i) && c.Terminating && s.guarded[i], move{protectionLetsGo, 0, i}, func(n *scene) {
			n.guarded[i] = false
			n.write(i, func(*provision.ClaimView) {})
		})
		p := s.pvs[name]
		k.Can(p.belongs(i) && !p.terminating && s.there(i) && c.Bound == provision.Unbound, move{controllerBinds, 0, i}, func(n *scene) {
			n.write(i, func(c *provision.ClaimView) { c.Bound = provision.BoundOwn })
		})
		k.Can(p.foreign() && p.terminating, move{foreignPVGoes, 0, name}, func(n *scene) { n.setPV(name, pv{}) })
		over := p.belongs(i) && (!s.there(i) || c.Bound == provision.BoundElsewhere) && !k.atWork(s, maxReplicas, name)
		k.Can(over && s.volumes[name].there, move{reclaimerDeletesVolume, 0, i}, func(n *scene) { n.volumes[name] = volume{} })
		k.Can(over && !s.volumes[name].there, move{reclaimerDeletesPV, 0, i}, func(n *scene) { n.setPV(name, pv{}) })
	}
}
