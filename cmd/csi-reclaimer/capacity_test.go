package main

import (
	"testing"
	"time"
)

func TestPublishes(t *testing.T) {
	inPod := map[string]string{"POD_NAME": "driver-0", "NAMESPACE": "csi", "POD_NAMESPACE": ""}
	for name, c := range map[string]struct {
		args []string
		env  map[string]string
		want bool
	}{
		"nothing, unless it is asked for": {nil, inPod, false},
		"as requested":                    {[]string{"--enable-capacity=true"}, inPod, true},
		"without provisioning too":        {[]string{"--enable-capacity=true", "--provision=false"}, inPod, true},
		"a dry run writes nothing":        {[]string{"--enable-capacity=true", "--dry-run=true"}, nil, false},
		"nor does a release":              {[]string{"--enable-capacity=true", "--release-finalizers=true"}, nil, false},
		"outside of a pod, without an owner": {[]string{"--enable-capacity=true", "--capacity-ownerref-level=-1"},
			map[string]string{"POD_NAME": "", "NAMESPACE": "", "POD_NAMESPACE": "csi"}, true},
	} {
		t.Run(name, func(t *testing.T) {
			set(t, c.env)
			o, err := parse(t, c.args...)
			if err != nil || o.publishes() != c.want {
				t.Fatalf("%v, %v", err, err == nil && o.publishes())
			}
			if got := o.capacityConfig(); c.want && (got.Validate() != nil || got.Namespace != "csi" ||
				got.PollInterval != time.Minute || got.Workers != 1) {
				t.Errorf("%v: %+v", got.Validate(), got)
			}
		})
	}
	for name, c := range map[string]struct {
		args []string
		env  map[string]string
	}{
		"no namespace":               {nil, map[string]string{"POD_NAME": "driver-0", "NAMESPACE": "", "POD_NAMESPACE": ""}},
		"no pod":                     {nil, map[string]string{"POD_NAME": "", "NAMESPACE": "csi"}},
		"beside another provisioner": {[]string{"--role=companion"}, inPod},
		"no time between polls":      {[]string{"--capacity-poll-interval=0s"}, inPod},
		"no workers":                 {[]string{"--capacity-threads=0"}, inPod},
		"an owner below the pod":     {[]string{"--capacity-ownerref-level=-2"}, inPod},
		"a negative limit":           {[]string{"--kube-api-capacity-qps=-1"}, inPod},
		"a limit that lets none by":  {[]string{"--kube-api-capacity-burst=0"}, inPod},
	} {
		t.Run(name, func(t *testing.T) {
			set(t, c.env)
			if _, err := parse(t, append(c.args, "--enable-capacity=true")...); err == nil {
				t.Error("it is taken")
			}
		})
	}
}

func set(t *testing.T, env map[string]string) {
	t.Helper()
	for name, value := range env {
		t.Setenv(name, value)
	}
}
