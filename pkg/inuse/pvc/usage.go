package pvc

// UsageOf returns the use of the claim by these pods. It is a pure function; pods of other namespaces do not count.
func UsageOf(c Claim, pods []Pod) Usage {
	all := make([]*Pod, len(pods))
	for i := range pods {
		all[i] = &pods[i]
	}
	return usageOf(c, all)
}
