// Package suite is the only source of the test binary e2e-storage.test: Kubernetes' tests of a
// storage driver (k8s.io/kubernetes/test/e2e/storage/external) without all its other tests, which
// would bring 850 more packages. build.py copies this file beside a go.mod that requires Kubernetes.
//
// With -results FILE each test is written there when it begins and when it ends, one JSON object a
// line, by whichever process runs it. So what has ended is known even if a process is killed, and
// a test that never ends is known by its name.
package suite

import (
	"encoding/json"
	"flag"
	"os"
	"testing"
	"time"

	"github.com/onsi/ginkgo/v2"
	"github.com/onsi/ginkgo/v2/types"
	"github.com/onsi/gomega"

	"k8s.io/component-base/logs"
	"k8s.io/kubernetes/test/e2e/framework"
	"k8s.io/kubernetes/test/e2e/framework/config"
	"k8s.io/kubernetes/test/e2e/framework/testfiles"
	manifests "k8s.io/kubernetes/test/e2e/testing-manifests"

	_ "k8s.io/kubernetes/test/e2e/framework/debug/init"
	_ "k8s.io/kubernetes/test/e2e/framework/node/init"
	_ "k8s.io/kubernetes/test/e2e/storage/external"
)

var results = flag.String("results", "", "file that gets a line for each test that begins or ends")

// line is what a reader of the results gets.
type line struct {
	// Event is "selected", "began" or "ended".
	Event string `json:"event"`
	// Count is the number of tests that were selected.
	Count   int     `json:"count,omitempty"`
	Name    string  `json:"name,omitempty"`
	State   string  `json:"state,omitempty"`
	Seconds float64 `json:"seconds,omitempty"`
	Message string  `json:"message,omitempty"`
	Process int     `json:"process,omitempty"`
}

func TestMain(m *testing.M) {
	config.CopyFlags(config.Flags, flag.CommandLine)
	framework.RegisterCommonFlags(flag.CommandLine)
	framework.RegisterClusterFlags(flag.CommandLine)
	flag.Parse()
	testfiles.AddFileSource(manifests.GetE2ETestingManifestsFS())
	testfiles.AddFileSource(testfiles.RootFileSource{Root: "/"})
	framework.AfterReadingAllFlags(&framework.TestContext)
	report()
	os.Exit(m.Run())
}

func TestStorage(t *testing.T) {
	logs.InitLogs()
	defer logs.FlushLogs()
	gomega.RegisterFailHandler(framework.Fail)
	suite, reporter := framework.CreateGinkgoConfig()
	ginkgo.RunSpecs(t, "External storage", suite, reporter)
}

// report has ginkgo tell of each test. It comes after the flags have been read: there the framework
// looks over all specs with PreviewSpecs, and of what was declared before, ginkgo 2.28 tells what
// belongs to each spec to that preview alone (internal/suite.go, Clone).
func report() {
	ginkgo.ReportBeforeSuite(func(report ginkgo.Report) {
		write(line{Event: "selected", Count: report.PreRunStats.SpecsThatWillRun})
	})
	ginkgo.ReportBeforeEach(func(report ginkgo.SpecReport) {
		if report.State == types.SpecStateInvalid {
			write(line{Event: "began", Name: report.FullText(), Process: report.ParallelProcess})
		}
	})
	ginkgo.ReportAfterEach(func(report ginkgo.SpecReport) {
		// One that the command line has not selected says nothing; one that skips itself says why.
		if report.State == types.SpecStateSkipped && report.Failure.Message == "" {
			return
		}
		write(line{
			Event:   "ended",
			Name:    report.FullText(),
			State:   report.State.String(),
			Seconds: report.RunTime.Round(time.Millisecond).Seconds(),
			Message: report.Failure.Message,
			Process: report.ParallelProcess,
		})
	})
}

func write(each line) {
	if *results == "" {
		return
	}
	text, err := json.Marshal(each)
	if err != nil {
		panic(err)
	}
	file, err := os.OpenFile(*results, os.O_APPEND|os.O_CREATE|os.O_WRONLY, 0o644)
	if err != nil {
		panic(err)
	}
	defer file.Close()
	// One call of write, so that lines of several processes never mix.
	if _, err := file.Write(append(text, '\n')); err != nil {
		panic(err)
	}
}
