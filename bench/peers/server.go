package main

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net"
	"net/http"
	"os"
	"os/exec"
	"path/filepath"
	"strconv"
	"time"

	"golang.org/x/sync/errgroup"
)

// serverStart is how long llama-server may take to load.
const serverStart = 2 * time.Minute

// prompts is a workload as work.py writes it.
type prompts struct {
	Name   string      `json:"name"`
	Tokens int         `json:"output_tokens"`
	Rows   []promptRow `json:"rows"`
}

// promptRow is a prompt, as ids or as text.
type promptRow struct {
	IDs    []int  `json:"ids"`
	Prompt string `json:"prompt"`
}

func (s *session) prompts(name string) (*prompts, error) {
	data, err := os.ReadFile(filepath.Join(s.workDir, name+".json"))
	if err != nil {
		return nil, err
	}
	p := &prompts{}
	if err := json.Unmarshal(data, p); err != nil {
		return nil, fmt.Errorf("read workload %s: %w", name, err)
	}
	return p, nil
}

func (p *prompts) first(n int) *prompts {
	short := *p
	short.Rows = p.Rows[:min(n, len(p.Rows))]
	return &short
}

// served is what a server made of a workload.
type served struct {
	wall               float64
	prompt, completion int // tokens
}

// server runs a workload on llama-server with so many slots, each with room for length tokens. Loading and a small warm-up
// are not in the time. With ahead the first row is completed before the others are sent.
func (s *session) server(ctx context.Context, build, file string, slots, length int, p *prompts, ahead bool) (res served, err error) {
	port, err := freePort()
	if err != nil {
		return res, err
	}
	ctx, cancel := context.WithTimeout(ctx, commandLimit)
	defer cancel()
	var talk bytes.Buffer
	cmd := exec.CommandContext(ctx, filepath.Join(s.llama[build], "llama-server"), "-m", file, "-t", strconv.Itoa(s.threads), "-tb", strconv.Itoa(s.threads),
		"-np", strconv.Itoa(slots), "-c", strconv.Itoa(slots*length), "-fa", "on", "--host", "127.0.0.1", "--port", strconv.Itoa(port))
	cmd.Stdout, cmd.Stderr = &talk, &talk
	if err := cmd.Start(); err != nil {
		return res, err
	}
	ended := make(chan error, 1)
	go func() { ended <- cmd.Wait() }()
	defer func() {
		cancel()
		werr := <-ended
		if err != nil {
			err = fmt.Errorf("llama-server: %w (%v)\n%s", err, werr, tail(talk.Bytes()))
		}
	}()
	client := &http.Client{Transport: &http.Transport{MaxIdleConnsPerHost: slots}}
	base := "http://127.0.0.1:" + strconv.Itoa(port)
	if err := ready(ctx, client, base, ended); err != nil {
		return res, err
	}
	warm := &prompts{Tokens: 4}
	for i := range 2 {
		warm.Rows = append(warm.Rows, promptRow{IDs: []int{1000 + i, 1001, 1002, 1003}})
	}
	if _, err := drive(ctx, client, base, slots, warm, 0); err != nil {
		return res, err
	}
	lead := 0
	if ahead {
		lead = 1
	}
	return drive(ctx, client, base, slots, p, lead)
}

// drive sends all rows, as many at once as there are slots, and two more so that none waits; the first lead rows one by one
// before.
func drive(ctx context.Context, client *http.Client, base string, slots int, p *prompts, lead int) (served, error) {
	began := time.Now()
	got := make([]served, len(p.Rows))
	for i := range lead {
		if err := complete(ctx, client, base, p, i, &got[i]); err != nil {
			return served{}, err
		}
	}
	g, ctx := errgroup.WithContext(ctx)
	g.SetLimit(slots + 2)
	for i := lead; i < len(p.Rows); i++ {
		g.Go(func() error { return complete(ctx, client, base, p, i, &got[i]) })
	}
	if err := g.Wait(); err != nil {
		return served{}, err
	}
	sum := served{wall: time.Since(began).Seconds()}
	for _, one := range got {
		sum.prompt, sum.completion = sum.prompt+one.prompt, sum.completion+one.completion
	}
	return sum, nil
}

// complete asks for one row, greedily, going on after end tokens.
func complete(ctx context.Context, client *http.Client, base string, p *prompts, i int, got *served) error {
	var prompt any = p.Rows[i].Prompt
	if p.Rows[i].IDs != nil {
		prompt = p.Rows[i].IDs
	}
	body, err := json.Marshal(map[string]any{
		"prompt": prompt, "n_predict": p.Tokens, "temperature": 0, "samplers": []string{"top_k"}, "top_k": 1, "ignore_eos": true, "cache_prompt": true, "stream": false,
	})
	if err != nil {
		return err
	}
	req, err := http.NewRequestWithContext(ctx, http.MethodPost, base+"/completion", bytes.NewReader(body))
	if err != nil {
		return err
	}
	req.Header.Set("Content-Type", "application/json")
	resp, err := client.Do(req)
	if err != nil {
		return err
	}
	defer resp.Body.Close()
	data, err := io.ReadAll(resp.Body)
	if err != nil {
		return err
	}
	if resp.StatusCode != http.StatusOK {
		return fmt.Errorf("row %d: %s: %s", i, resp.Status, tail(data))
	}
	var answer struct {
		Evaluated int `json:"tokens_evaluated"` // of the prompt, cached ones included
		Predicted int `json:"tokens_predicted"`
	}
	if err := json.Unmarshal(data, &answer); err != nil {
		return fmt.Errorf("row %d: %w", i, err)
	}
	if answer.Predicted != p.Tokens {
		return fmt.Errorf("row %d: %d tokens came back, %d were asked for", i, answer.Predicted, p.Tokens)
	}
	got.prompt, got.completion = answer.Evaluated, answer.Predicted
	return nil
}

// ready waits until the server has loaded its model.
func ready(ctx context.Context, client *http.Client, base string, ended <-chan error) error {
	ctx, cancel := context.WithTimeout(ctx, serverStart)
	defer cancel()
	for {
		req, err := http.NewRequestWithContext(ctx, http.MethodGet, base+"/health", nil)
		if err != nil {
			return err
		}
		if resp, err := client.Do(req); err == nil {
			resp.Body.Close()
			if resp.StatusCode == http.StatusOK {
				return nil
			}
		}
		select {
		case <-ctx.Done():
			return errors.New("it did not become ready")
		case <-time.After(100 * time.Millisecond):
		}
		if len(ended) > 0 {
			return errors.New("it ended while it loaded")
		}
	}
}

func freePort() (int, error) {
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		return 0, err
	}
	defer l.Close()
	return l.Addr().(*net.TCPAddr).Port, nil
}
