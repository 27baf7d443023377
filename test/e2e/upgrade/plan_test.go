//go:build unix

package upgrade

import (
	"slices"

	"github.com/csi-reclaimer/csi-reclaimer/mock-driver/faults"
)

// plan holds the driver's current faults: rules that are added and removed by name. Each change counts all calls anew.
type plan struct {
	env   *environment
	rules []faults.Rule
}

// add adds rules, which have names.
func (p *plan) add(rules ...faults.Rule) {
	p.env.T.Helper()
	p.rules = append(p.rules, rules...)
	p.set()
}

// heal removes the rules of these names.
func (p *plan) heal(names ...string) {
	p.env.T.Helper()
	p.remove(names...)
	p.set()
}

// replace removes the rule of that name and adds others, at once.
func (p *plan) replace(name string, rules ...faults.Rule) {
	p.env.T.Helper()
	p.remove(name)
	p.add(rules...)
}

func (p *plan) remove(names ...string) {
	p.rules = slices.DeleteFunc(p.rules, func(r faults.Rule) bool { return slices.Contains(names, r.Name) })
}

func (p *plan) set() {
	p.env.T.Helper()
	p.env.Must(p.env.MockDriver.SetFaults(p.env.Ctx, faults.Plan{Rules: p.rules}))
}
