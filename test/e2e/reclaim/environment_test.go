//go:build unix

package reclaim

import (
	"os"
	"testing"

	"github.com/csi-reclaimer/csi-reclaimer/test/framework/fixture"
	"github.com/csi-reclaimer/csi-reclaimer/test/framework/mockdriver"
)

func TestMain(m *testing.M) { os.Exit(fixture.Main(m)) }

// environment is the environment of a test, with the helpers of this suite.
type environment struct{ *fixture.Environment }

func newEnvironment(t *testing.T) *environment {
	t.Helper()
	return &environment{fixture.New(t)}
}

func newForRole(t *testing.T, role string, options mockdriver.Options) *environment {
	t.Helper()
	return &environment{fixture.NewForRole(t, role, options)}
}

func (env *environment) forSubtest(t *testing.T) *environment {
	return &environment{env.ForSubtest(t)}
}
