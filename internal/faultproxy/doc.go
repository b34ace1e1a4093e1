// Package faultproxy stands between a program under test and an S3 server and does what networks and stores do on a bad
// day: it answers with errors before or after the write landed, loses answers, resets connections, lets writes land late,
// cuts bodies short, and delays. Whatever it lets through reaches the server unchanged, with the Host header that the client
// signed, so that signatures stay valid.
//
// It never lies: a refusal for a condition (412) comes from the server alone, a conflict (409) and an error "before" mean
// that nothing was written, and a landed write stays.
//
// Which request is hit follows from the seed, the operation, the key, and how often that operation was asked for that key
// before, so that other keys' traffic, and the order in which requests race, change nothing.
//
//	p, err := faultproxy.Start(faultproxy.Config{Target: srv.Endpoint, Seed: 7, Rules: faultproxy.Storm(0.1)})
//	defer p.Close()
//	// point the client's endpoint at p.URL
//	p.Settle()             // no write is under way any more
//	fmt.Println(p.Counts())
package faultproxy
