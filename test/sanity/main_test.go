//go:build unix

package sanity_test

import (
	"encoding/json"
	"flag"
	"fmt"
	"os"
	"testing"

	"github.com/kubernetes-csi/csi-test/v5/pkg/sanity"
	"github.com/onsi/ginkgo/v2"
	"github.com/onsi/gomega"
)

// suiteVariable makes the test binary run csi-sanity once instead of its tests. Ginkgo runs one suite per process, so
// that each profile needs one of its own.
const suiteVariable = "CSI_SANITY_SUITE"

// suite is the configuration of one run of csi-sanity.
type suite struct {
	// Address of the driver, Report the file for ginkgo's report, Dir an empty directory, Secrets a file with a secret for
	// each call.
	Address, Report, Dir, Secrets string
	// AccessType is mount or block.
	AccessType string
}

func TestMain(m *testing.M) {
	settings := os.Getenv(suiteVariable)
	if settings == "" {
		os.Exit(m.Run())
	}
	flag.Parse()
	var s suite
	if err := json.Unmarshal([]byte(settings), &s); err != nil {
		fmt.Fprintln(os.Stderr, err)
		os.Exit(2)
	}
	os.Exit(s.run())
}

// run runs csi-sanity and returns an exit status.
func (s suite) run() int {
	config := sanity.NewTestConfig()
	config.Address = s.Address
	config.TargetPath, config.StagingPath = s.Dir+"/target", s.Dir+"/staging"
	config.SecretsFile = s.Secrets
	config.TestVolumeAccessType = s.AccessType
	config.TestNodeVolumeAttachLimit = true
	config.TestVolumeMutableParameters = map[string]string{"tier": "gold"}

	var result verdict
	gomega.RegisterFailHandler(ginkgo.Fail)
	context := sanity.GinkgoTest(&config)
	ginkgoConfig, reporter := ginkgo.GinkgoConfiguration()
	reporter.JSONReport = s.Report
	reporter.NoColor = true
	ginkgo.RunSpecs(&result, "csi-sanity", ginkgoConfig, reporter)
	context.Finalize()
	return result.exit
}

// verdict stands in for a *testing.T.
type verdict struct{ exit int }

func (v *verdict) Fail() { v.exit = 1 }
