"""What the suite relies on of a broker, asked of each engine: the embedded broker, and a real Artemis.

One broker of each engine serves all tests, one engine after the other, in one worker. The brokers have the settings
that the storage controller gives them. What a test expects of both is written once; what differs stands in
`expected(embedded=…, artemis=…)`, and every test that uses it has a row in docs/engines.md (test_differences.py).
"""
